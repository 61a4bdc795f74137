"""What a shell needs to use the cluster: the lines of `gpu-platform dev env`."""

import os
import shlex
import sys
from pathlib import Path

from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.pulumi_plugins import OWN_PLUGIN, STAND_IN, has_official_plugin
from gpu_platform.devcluster.queue_identity import credentials_file
from gpu_platform.devcluster.record import ClusterRecord
from gpu_platform.nats.permissions import QueueUser

OWN_PROGRAMS = str(Path(sys.executable).parent)
"""Where `gpu-platform` and its `python3` are. Not resolved: the virtual environment has them, its target has not."""


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
