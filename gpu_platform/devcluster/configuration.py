"""What processes and shells are given: the files that the parts read at their start (kubeconfigs, audit policy, NATS
server configuration), and the variables of `gpu-platform dev env`, with the Pulumi plugins that its PATH has."""

import os
import shlex
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

import gpu_platform
from gpu_platform.devcluster.credentials import credentials_file, ensure_certificates, ensure_identities, key_pair
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.record import LOOPBACK, ClusterRecord
from gpu_platform.domain.names import EMBEDDED_CLUSTER, EMBEDDED_CONTEXT
from gpu_platform.domain.rbac import ACCOUNTS, account_user
from gpu_platform.nats.permissions import QueueUser
from gpu_platform.nats.subjects import RESERVED_BYTES
from gpu_platform.process import write_atomically

COMPONENTS_WITH_KUBECONFIG = ("kube-controller-manager", "kube-scheduler", "kwok", "host-node", *ACCOUNTS)

AUDIT_POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        # Probes of the API server's own readiness.
        {"level": "None", "nonResourceURLs": ["*"]},
        # All that the platform's processes do, reads too: it shows which of their rights they use.
        {"level": "Metadata", "users": [account_user(account) for account in ACCOUNTS]},
        # Node heartbeats and leader election would drown what the log is kept for: who changed what.
        {"level": "None", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]},
        {"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
        {"level": "None"},
    ],
}

NATS_FILE_BYTES = 2 * RESERVED_BYTES
"""As much again as the platform's streams reserve, for streams that a developer makes."""

NATS_MEMORY_BYTES = 256 << 20
"""For messages. The platform's streams keep theirs in files."""

PULUMI_PASSPHRASE = "development-only"  # noqa: S105
"""The same everywhere, because `Pulumi.dev.yaml` carries the salt that belongs to it. It protects nothing: a reader
of the embedded state can read this file beside it. Real stacks bring their own passphrase or key service."""

OFFICIAL_PLUGIN = "pulumi-resource-kubernetes"
INSTALLED_AS = "resource-kubernetes-v*"

STAND_IN = Path(__file__).with_name("pulumi_kubernetes") / "bin"
"""The directory of the stand-in. It is a program to start, not a package to import."""

OWN_PLUGIN = Path(gpu_platform.__file__).resolve().parents[1] / "providers" / "cluster" / "bin"
"""The directory of `pulumi-resource-gpuplatform`, for stacks of units that a person works on by hand."""

OWN_PROGRAMS = str(Path(sys.executable).parent)
"""Where `gpu-platform` and its `python3` are. Not resolved: the virtual environment has them, its target has not."""


def kubeconfig_of(directory: ClusterDirectory, component: str) -> Path:
    return directory.pki / f"{component}.kubeconfig"


def write_configuration(directory: ClusterDirectory, record: ClusterRecord, now: datetime) -> None:
    ensure_certificates(directory.pki, now)
    write_atomically(directory.kubeconfig, _kubeconfig(directory, record, "admin"))
    for component in COMPONENTS_WITH_KUBECONFIG:
        write_atomically(kubeconfig_of(directory, component), _kubeconfig(directory, record, component))
    write_atomically(directory.audit_policy, yaml.safe_dump(AUDIT_POLICY))
    write_atomically(directory.pulumi_passphrase, PULUMI_PASSPHRASE)
    keyring = ensure_identities(directory, now)
    write_atomically(directory.nats_config, _nats_configuration(directory, record) + keyring.render_server(now))


def _kubeconfig(directory: ClusterDirectory, record: ClusterRecord, user: str) -> str:
    pair = key_pair(directory.pki, user)
    cluster = {
        "server": record.api_server_url,
        "certificate-authority": str(key_pair(directory.pki, "ca").certificate),
        # By which the stand-in for Pulumi's kubernetes plugin knows that it may change this cluster.
        "extensions": [{"name": EMBEDDED_CLUSTER, "extension": {"directory": str(directory.root)}}],
    }
    credentials = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
    context = {"cluster": EMBEDDED_CONTEXT, "user": user}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": EMBEDDED_CONTEXT, "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": EMBEDDED_CONTEXT, "context": context}],
        "current-context": EMBEDDED_CONTEXT,
    }
    return yaml.safe_dump(document, sort_keys=False)


def _nats_configuration(directory: ClusterDirectory, record: ClusterRecord) -> str:
    return f"""\
server_name: gpu-platform-dev
listen: "{LOOPBACK}:{record.ports["nats"]}"
http: "{LOOPBACK}:{record.ports["nats-monitor"]}"
jetstream {{
  store_dir: "{directory.nats_data}"
  # The default is a share of the disk, which may be less than the streams reserve.
  max_file_store: {NATS_FILE_BYTES}
  max_memory_store: {NATS_MEMORY_BYTES}
  # An acknowledged message is on disk: the default would lose up to two minutes of them with the machine.
  sync_interval: always
}}
"""


def has_official_plugin(path_entries: Iterable[str], pulumi_home: Path) -> bool:
    """Whether the CLI would find one. It must: what is on PATH wins over what `pulumi plugin install` put away."""
    on_path = any(os.access(Path(entry) / OFFICIAL_PLUGIN, os.X_OK) for entry in path_entries)
    return on_path or any((each / OFFICIAL_PLUGIN).exists() for each in (pulumi_home / "plugins").glob(INSTALLED_AS))


def add_own_programs(path: str) -> str:
    """The given PATH with the platform's programs first, also when it names them later."""
    return os.pathsep.join([OWN_PROGRAMS, *(entry for entry in path.split(os.pathsep) if entry != OWN_PROGRAMS)])


def cluster_environment(directory: ClusterDirectory, record: ClusterRecord, path: str) -> dict[str, str]:
    """The variables, given the caller's PATH. Entries that are in it already are not added twice."""
    ours = [OWN_PROGRAMS, str(OWN_PLUGIN), *record.path_entries]
    theirs = [entry for entry in path.split(os.pathsep) if entry and entry not in (*ours, str(STAND_IN))]
    if not has_official_plugin([*ours, *theirs], directory.pulumi_home):
        ours.append(str(STAND_IN))
    return {
        # An API that is started by hand in this shell dials loopback only, as the cluster's own does.
        "GPU_PLATFORM_API_DEVELOPMENT_ADDRESSES": "true",
        "GPU_PLATFORM_KEY": record.api_key,
        **_probe_urls(record),
        "GPU_PLATFORM_STACK_WORKER_BACKEND_URL": f"file://{directory.stacks}/state",
        "GPU_PLATFORM_STACK_WORKER_STATE_DIRECTORY": str(directory.stacks),
        "GPU_PLATFORM_URL": record.platform_url,
        "KUBECONFIG": str(directory.kubeconfig),
        # As the command `nats` reads them: everything in the platform's account.
        "NATS_CREDS": str(credentials_file(directory, QueueUser.PLATFORM)),
        "NATS_URL": record.nats_url,
        # Without files of attributes: a Pulumi that is killed can leave an empty one, and then reads no state any more.
        "PULUMI_BACKEND_URL": f"file://{directory.pulumi_state}?metadata=skip",
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(directory.pulumi_passphrase),
        "PULUMI_HOME": str(directory.pulumi_home),
        "PULUMI_PYTHON_CMD": sys.executable,
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PATH": os.pathsep.join([*ours, *theirs]),
    }


def _probe_urls(record: ClusterRecord) -> dict[str, str]:
    """Not under GPU_PLATFORM_API_: these would be settings of an API that is started by hand in this shell. A cluster
    that was last started by an earlier release has none of these ports; its next start reserves them."""
    if not {"api-metrics", "api-probes"} <= record.ports.keys():
        return {}
    return {"GPU_PLATFORM_METRICS_URL": record.metrics_url, "GPU_PLATFORM_PROBE_URL": record.probe_url}


def shell_exports(variables: dict[str, str]) -> str:
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    if str(STAND_IN) in variables.get("PATH", "").split(os.pathsep):
        lines.insert(0, "# Pulumi's kubernetes plugin is not installed: PATH has a stand-in for it, without Helm.")
    return "\n".join(lines)
