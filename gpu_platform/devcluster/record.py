"""What is kept about a cluster beside its data: the ports that it reserves, the record by which it starts again with
the same identity, and the status of its processes, which the supervisor writes and every command reads."""

import json
import random
import secrets
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from gpu_platform.devcluster import DevClusterError
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.domain.tenants import build_key, draw_key_parts
from gpu_platform.process import write_atomically

LOOPBACK = "127.0.0.1"

OURS = range(20_000, 32_000)
"""Below the kernel's own range: a port from there could become some connection's before its server binds it."""

PORT_NAMES = (
    "etcd",
    "etcd-peer",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "nats",
    "nats-monitor",
    "api",
    "api-metrics",
    "api-probes",
    "reconciler",
    "reconciler-metrics",
    "stack-worker",
    "stack-worker-metrics",
)

DEFAULT_NODES = 4
DEFAULT_GPUS = 8

ProcessState = Literal["waiting", "starting", "ready", "done", "restarting", "stopped"]
"""`done` is a step that has ended well: what `ready` is to a process."""

ClusterPhase = Literal["starting", "ready", "stopping", "failed", "stopped"]


def reserve_ports(recorded: Mapping[str, int]) -> dict[str, socket.socket]:
    """A bound socket per name. A kept port keeps yesterday's kubeconfig and NATS URL valid.

    The port is reserved as long as the socket is open: nothing else here chooses it, also while its server has not
    started yet or is being restarted. The server itself can listen on it, because servers set SO_REUSEADDR.
    """
    reserved: dict[str, socket.socket] = {}
    try:
        for name in PORT_NAMES:
            kept = _bind(recorded[name], reuse=True) if name in recorded else None
            reserved[name] = kept or _bind_any()
    except BaseException:
        close_all(reserved)
        raise
    return reserved


def close_all(reserved: Mapping[str, socket.socket]) -> None:
    for each in reserved.values():
        each.close()


def _bind_any() -> socket.socket:
    for port in random.sample(OURS, k=len(OURS)):
        if bound := _bind(port, reuse=False):
            return bound
    raise DevClusterError(f"no port of {OURS.start} to {OURS.stop - 1} is free on {LOOPBACK}; stop what holds them")


def _bind(port: int, *, reuse: bool) -> socket.socket | None:
    """With `reuse`, connections of the last server that have not quite ended do not matter."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
    try:
        bound.bind((LOOPBACK, port))
    except OSError:
        bound.close()
        return None
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return bound


@dataclass(frozen=True)
class ClusterRecord:
    id: str
    """Marks every process of this cluster in its environment, so that leftovers are found by proof."""

    pods: str
    """Root of the host node's pod directories: short, because a Unix socket's path ends at 107 characters."""

    api_key: str
    """Opens everything: the platform of one developer on one machine."""

    ports: Mapping[str, int]
    nodes: int
    gpus: int
    platform: bool
    """The platform's own processes run too, not only the cluster."""

    stack_worker: bool
    """One of them keeps the units' stacks."""

    binaries: Mapping[str, str]
    path_entries: tuple[str, ...]

    @classmethod
    def new(cls) -> Self:
        identity = secrets.token_hex(4)
        return cls(
            id=identity,
            pods=str(Path(tempfile.gettempdir()) / f"gpu-{identity}"),
            api_key=_new_key(),
            ports={},
            nodes=DEFAULT_NODES,
            gpus=DEFAULT_GPUS,
            platform=True,
            stack_worker=True,
            binaries={},
            path_entries=(),
        )

    def sized(self, nodes: int | None, gpus: int | None) -> Self:
        """The same cluster with another size; what is not said stays."""
        return replace(
            self,
            nodes=self.nodes if nodes is None else nodes,
            gpus=self.gpus if gpus is None else gpus,
        )

    @property
    def nats_url(self) -> str:
        return f"nats://127.0.0.1:{self.ports['nats']}"

    @property
    def platform_url(self) -> str:
        return f"http://127.0.0.1:{self.ports['api']}"

    @property
    def metrics_url(self) -> str:
        """The listener of the API process for Prometheus."""
        return f"http://127.0.0.1:{self.ports['api-metrics']}"

    @property
    def probe_url(self) -> str:
        """The listener of the API process for probes."""
        return f"http://127.0.0.1:{self.ports['api-probes']}"

    @property
    def api_server_url(self) -> str:
        return f"https://127.0.0.1:{self.ports['kube-apiserver']}"


def _new_key() -> str:
    return build_key(*draw_key_parts(secrets.token_bytes))


def find_record(directory: ClusterDirectory) -> ClusterRecord | None:
    try:
        fields = json.loads(directory.record.read_text())
        # One from before NATS knew its users by their keys has a password that opens nothing any more.
        fields.pop("nats_password", None)
        # A cluster from before there were keys and stacks gets them.
        added = {"api_key": _new_key(), "stack_worker": True}
        return ClusterRecord(**{**added, **fields, "path_entries": tuple(fields["path_entries"])})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise DevClusterError(
            f"{directory.record} is not a cluster record ({error}); "
            f"remove {directory.root} to start with an empty cluster"
        ) from error


def get_record(directory: ClusterDirectory) -> ClusterRecord:
    record = find_record(directory)
    if record is None:
        raise DevClusterError(
            f"there is no cluster in {directory.root}; start one there with "
            f"`gpu-platform dev up --dir {directory.root}`, or name another directory"
        )
    return record


def save_record(directory: ClusterDirectory, record: ClusterRecord) -> None:
    write_atomically(directory.record, json.dumps(asdict(record), indent=2) + "\n")


@dataclass
class ProcessStatus:
    name: str
    address: str
    log: str
    state: ProcessState = "waiting"
    pid: int | None = None
    started_at: float | None = None
    restarts: int = 0
    exit_code: int | None = None

    @property
    def is_fine(self) -> bool:
        return self.state in ("ready", "done")


@dataclass
class ClusterStatus:
    phase: ClusterPhase
    supervisor_pid: int | None = None
    error: str | None = None
    processes: list[ProcessStatus] = field(default_factory=list)


def write_status(directory: ClusterDirectory, status: ClusterStatus) -> None:
    write_atomically(directory.status, json.dumps(asdict(status), indent=2) + "\n")


def read_status(directory: ClusterDirectory) -> ClusterStatus:
    """The last status written; of a cluster that never ran, `stopped`."""
    try:
        fields: dict[str, Any] = json.loads(directory.status.read_text())
    except FileNotFoundError:
        return ClusterStatus(phase="stopped")
    processes = [ProcessStatus(**process) for process in fields.pop("processes")]
    return ClusterStatus(**fields, processes=processes)


def resident_bytes(pid: int) -> int | None:
    """Memory that the process holds now, or None when it is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return None
    return None
