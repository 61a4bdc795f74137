"""The files that the parts read at their start: kubeconfigs, audit policy, NATS server configuration."""

from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from gpu_platform.devcluster.credentials import ensure_certificates, key_pair
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.files import write_atomically
from gpu_platform.devcluster.ports import LOOPBACK
from gpu_platform.devcluster.queue_identity import ensure_identities
from gpu_platform.devcluster.record import ClusterRecord
from gpu_platform.domain.names import EMBEDDED_CLUSTER, EMBEDDED_CONTEXT
from gpu_platform.domain.rbac import ACCOUNTS, account_user
from gpu_platform.nats.subjects import RESERVED_BYTES

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
"""The same everywhere, because `Pulumi.dev.yaml` carries the salt that belongs to it. It protects nothing: whoever
can read the embedded state can read this file beside it. Real stacks bring their own passphrase or key service."""


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
