"""Starting, stopping and finding an embedded cluster: what `gpu-platform dev` and the tests call."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gpu_platform.devcluster import DevClusterError
from gpu_platform.devcluster.child_process import CLUSTER_MARK, kill_marked, last_words
from gpu_platform.devcluster.directory import ClusterDirectory, exclusive_lock, is_locked
from gpu_platform.devcluster.parts import Parts
from gpu_platform.devcluster.record import (
    ClusterRecord,
    ClusterStatus,
    close_all,
    find_record,
    read_status,
    reserve_ports,
    save_record,
)
from gpu_platform.process import dies_with_parent

START_SECONDS = 240.0
"""For everything to become ready; about 15 s on two idle cores, several times that when they are busy."""

SUPERVISOR = ("-m", "gpu_platform.devcluster.supervisor")
"""Before the cluster's directory, as its last argument: by it, a running cluster is found."""

STOP_SECONDS = 30.0
POLL_SECONDS = 0.05

_started: dict[Path, subprocess.Popen[bytes]] = {}
"""Supervisors that this process started: their parent must reap them, however much later they end."""

OnStatus = Callable[[ClusterStatus], None]
DIRECTORY_NAME = ".dev"


@dataclass(frozen=True)
class Wish:
    """What the person asked for; what is None stays as it was."""

    nodes: int | None = None
    gpus: int | None = None
    platform: bool = True
    """Also the platform's own processes, not only the cluster."""

    stack_worker: bool = True
    """Also the one of them that costs a second of a core for each unit."""

    tied: bool = False
    """The cluster ends with the process that started it, even if that is killed: for tests and the foreground."""


def up(directory: ClusterDirectory, parts: Parts, wish: Wish, on_status: OnStatus = lambda _: None) -> ClusterRecord:
    """Starts the cluster, with the data that it had; only checks one that runs."""
    directory.create()
    with exclusive_lock(directory.up_lock):
        found = find_record(directory)
        lacks_platform = wish.platform and found is not None and not found.platform
        if is_running(directory) and not lacks_platform:
            record = _resized(directory, found, wish)
            _wait_ready(directory, on_status, None)
        else:
            _stop_supervisor(directory)
            record, supervisor = _start(directory, parts, wish, found or ClusterRecord.new())
            try:
                _wait_ready(directory, on_status, supervisor)
            except BaseException:
                _stop_supervisor(directory)
                raise
        asyncio.run(_ensure_nodes(directory, record))
        return record


def down(directory: ClusterDirectory) -> bool:
    """Ends every process of the cluster and keeps its data; returns whether any was running."""
    record = find_record(directory)
    if record is None:
        return False
    with exclusive_lock(directory.up_lock):
        was_running = _stop_supervisor(directory)
        return bool(kill_marked(CLUSTER_MARK, record.id)) or was_running


def is_running(directory: ClusterDirectory) -> bool:
    return is_locked(directory.supervisor_lock)


def current_status(directory: ClusterDirectory) -> ClusterStatus:
    """The status, corrected by the one proof of life: a supervisor that was killed cannot say so itself."""
    status = read_status(directory)
    if is_running(directory) or status.phase in ("stopped", "failed"):
        return status
    for process in status.processes:
        process.state, process.pid = "stopped", None
    return replace(status, phase="stopped", supervisor_pid=None)


def _start(
    directory: ClusterDirectory, parts: Parts, wish: Wish, record: ClusterRecord
) -> tuple[ClusterRecord, subprocess.Popen[bytes]]:
    # Before the ports are chosen: leftovers of a killed supervisor still hold them.
    kill_marked(CLUSTER_MARK, record.id)
    # The supervisor inherits the reservations, and ends them when it ends.
    reserved = reserve_ports(record.ports)
    try:
        record = replace(
            record.sized(wish.nodes, wish.gpus),
            ports={name: each.getsockname()[1] for name, each in reserved.items()},
            platform=wish.platform,
            stack_worker=wish.stack_worker,
            binaries={part.name: str(part.path) for part in parts.executables},
            path_entries=tuple(str(entry) for entry in parts.path_entries),
        )
        save_record(directory, record)
        directory.status.unlink(missing_ok=True)
        inherited = [each.fileno() for each in reserved.values()]
        return record, _start_supervisor(directory, record, inherited, tied=wish.tied)
    finally:
        close_all(reserved)


def _resized(directory: ClusterDirectory, record: ClusterRecord | None, wish: Wish) -> ClusterRecord:
    if record is None:
        raise DevClusterError(
            f"a cluster runs in {directory.root} but its record is gone; "
            "stop it with `gpu-platform dev down` and start again"
        )
    record = record.sized(wish.nodes, wish.gpus)
    save_record(directory, record)
    return record


async def _ensure_nodes(directory: ClusterDirectory, record: ClusterRecord) -> None:
    # Here, because the Kubernetes client takes most of a second to import, and most commands never need it.
    from gpu_platform.devcluster.simulated_nodes import ensure_nodes
    from gpu_platform.kube import open_client

    async with await open_client(directory.kubeconfig) as kube:
        await ensure_nodes(kube, record.nodes, record.gpus)


def _start_supervisor(
    directory: ClusterDirectory, record: ClusterRecord, inherited: Sequence[int], *, tied: bool
) -> subprocess.Popen[bytes]:
    with directory.log_of("supervisor").open("ab") as log:
        supervisor = subprocess.Popen(
            [sys.executable, *SUPERVISOR, str(directory.root)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=dies_with_parent(signal.SIGTERM) if tied else None,
            env={**os.environ, CLUSTER_MARK: record.id},
            pass_fds=inherited,
        )
    _started[directory.root] = supervisor
    return supervisor


def _wait_ready(directory: ClusterDirectory, on_status: OnStatus, supervisor: subprocess.Popen[bytes] | None) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        status = read_status(directory)
        on_status(status)
        if status.phase == "ready":
            return
        if (supervisor is not None and supervisor.poll() is not None) or status.phase == "failed":
            error = status.error or f"the supervisor ended\n{last_words(directory.log_of('supervisor'))}"
            raise DevClusterError(f"the cluster did not start: {error}")
        if time.monotonic() > deadline:
            waiting = ", ".join(process.name for process in status.processes if not process.is_fine)
            raise DevClusterError(
                f"the cluster is not ready after {START_SECONDS:.0f} s, still waiting for {waiting}; "
                f"see the logs in {directory.logs}"
            )
        time.sleep(POLL_SECONDS)


def _stop_supervisor(directory: ClusterDirectory) -> bool:
    if not is_running(directory):
        return False
    pid = read_status(directory).supervisor_pid
    _signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while is_running(directory):
        if time.monotonic() > deadline:
            _signal(pid, signal.SIGKILL)
            break
        time.sleep(POLL_SECONDS)
    if (supervisor := _started.pop(directory.root, None)) is not None:
        supervisor.wait()
    return True


def _signal(pid: int | None, number: int) -> None:
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def find_nearby(start: Path) -> Path | None:
    """The nearest `.dev` that holds a cluster, running or not: in this directory, or in one above it."""
    candidates = (parent / DIRECTORY_NAME for parent in (start, *start.parents))
    return next((each for each in candidates if _is_own(each)), None)


def _is_own(root: Path) -> bool:
    """Whether this user's cluster is there. The record of another user must not decide which programs run."""
    try:
        return ClusterDirectory(root).record.stat().st_uid == os.getuid()
    except OSError:
        return False


def list_running(proc: Path = Path("/proc")) -> tuple[Path, ...]:
    """The directories of this user's clusters that run on this machine, by their supervisors' command lines."""
    command_lines = (_read_command_line(entry) for entry in proc.iterdir() if entry.name.isdigit())
    named = {Path(words[-1]) for words in command_lines if words[1:-1] == list(SUPERVISOR)}
    return tuple(sorted(root for root in named if is_running(ClusterDirectory(root))))


def choose_directory(looked_in: Path, nearby: Path | None, running: Sequence[Path]) -> Path:
    """The directory of the one cluster that can be meant; DevClusterError names where to look, or which to choose from.

    | nearby | running  | →                       |
    | ------ | -------- | ----------------------- |
    | yes    | any      | the one nearby          |
    | no     | one      | that one                |
    | no     | none     | refused: start one      |
    | no     | several  | refused: name one       |
    """
    if nearby is not None:
        return nearby
    if len(running) == 1:
        return running[0]
    looked = f"there is no cluster in {looked_in}, nor in the {DIRECTORY_NAME} of a directory above"
    if not running:
        raise DevClusterError(
            f"{looked}, and none runs on this machine; name its directory with --dir, "
            "or start one here with `gpu-platform dev up`"
        )
    raise DevClusterError(f"{looked}; name one of those that run with --dir: {', '.join(map(str, running))}")


def _read_command_line(process: Path) -> list[str]:
    try:
        if process.stat().st_uid != os.getuid():
            return []
        return os.fsdecode((process / "cmdline").read_bytes()).split("\0")[:-1]
    except OSError:
        # It ended meanwhile.
        return []
