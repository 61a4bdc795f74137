"""What the supervisor says of its processes, as a file: `up` waits on it, `status` shows it."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.files import write_atomically

ProcessState = Literal["waiting", "starting", "ready", "done", "restarting", "stopped"]
"""`done` is a step that has ended well: what `ready` is to a process."""

ClusterPhase = Literal["starting", "ready", "stopping", "failed", "stopped"]


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
