"""Whether a file in a stack's lock directory may be removed: only when its writer is provably gone.

Pulumi's locks have no lifetime: one that a killed process left stays until it is removed, and nothing looks at a lock
again while state is written, so to remove a live holder's lock is to have two writers. The CLI takes a lock by writing
a temporary file and renaming it, and reads every file of the directory: a temporary file that a kill or a full disk
left blocks the stack as well.

The kernel says which CLI lives: each that we start holds a lock (`flock`) on a pid file of its own until it ends. That
is exact where a pid is not, which a restarted container gives to another process within a second.
"""

import fcntl
import json
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from stacks.runner.backend import StackFiles

CLOCK_SLACK = timedelta(seconds=5)
"""The kernel counts a process's start from boot, and boot by a clock that is set now and then."""

TEMPORARY = ".tmp"
ATTRIBUTES = ".attrs"
"""Kept beside a file by a CLI without `metadata=skip`; the only files of the directory that the CLI does not read."""


@dataclass(frozen=True)
class Lock:
    """As its holder wrote it."""

    pid: int
    hostname: str
    taken_at: datetime


@dataclass(frozen=True)
class RunningProcess:
    started_at: datetime
    arguments: tuple[str, ...] | None
    """None: they cannot be read, so it may be any process."""


@dataclass(frozen=True)
class LockFile:
    """A file of the lock directory, and what is known about its writer."""

    lock: Lock | None
    """None: the file is empty or not whole, and names no writer."""

    is_temporary: bool
    pid_file_held: bool | None
    """Whether the kernel's lock on the writer's pid file is held. None: there is no such file. Of a file that names no
    writer: whether any process of the stack holds one."""

    process: RunningProcess | None
    """What has the writer's pid on this host now."""


def may_remove(file: LockFile, stack: str, hostname: str, *, lease_expired: bool) -> bool:
    """The first row that fits. The caller has the stack's Lease.

    | file | pid file of its writer | process with the pid | remove |
    |---|---|---|---|
    | any | held | – | no, whatever the lease says |
    | temporary, names no writer | not held | – | yes: not a lock before it is renamed, and without it that fails |
    | names no writer | not held | – | when the lease has expired |
    | of another host | not held | cannot be asked | when the lease has expired |
    | of this host | there, not held | any: the pid was given out again | yes |
    | of this host | none | gone | yes |
    | of this host | none | began after the lock was taken, works on something else | yes |
    | of this host | none | any other | no, whatever the lease says |
    """
    lock, process = file.lock, file.process
    if file.pid_file_held:
        return False
    if lock is None or lock.hostname != hostname:
        return lease_expired or (lock is None and file.is_temporary)
    if file.pid_file_held is False or process is None:
        return True
    began_later = process.started_at > lock.taken_at + CLOCK_SLACK
    return began_later and process.arguments is not None and stack not in process.arguments


def remove_dead_locks(files: StackFiles, *, lease_expired: bool) -> bool:
    """True when there were files and none is left. Removes the very files that it looked at, and no later ones."""
    stack, hostname = files.address.stack, socket.gethostname()
    found = list_lock_files(files.locks)
    for path in found:
        if may_remove(observe_file(path, files.pids), stack, hostname, lease_expired=lease_expired):
            path.unlink(missing_ok=True)
            path.with_name(f"{path.name}{ATTRIBUTES}").unlink(missing_ok=True)
    return bool(found) and not list_lock_files(files.locks)


def find_nameless(directory: Path) -> Path | None:
    """A file of the lock directory that names no writer: the CLI fails at it and does not say that it is a lock."""
    return next((path for path in list_lock_files(directory) if parse_lock(path) is None), None)


def remove_free_pid_files(files: StackFiles) -> None:
    """Those of processes that have ended, unless a lock needs one as proof."""
    locks = [lock for path in list_lock_files(files.locks) if (lock := parse_lock(path))]
    needed = {pid_file_name(lock) for lock in locks}
    for path in files.pids.glob("*"):
        if path.name not in needed and not is_held(path):
            path.unlink(missing_ok=True)


def list_lock_files(directory: Path) -> list[Path]:
    """Every file that the CLI reads there."""
    return sorted(path for path in directory.glob("*") if path.suffix != ATTRIBUTES and path.is_file())


def observe_file(path: Path, pids: Path) -> LockFile:
    lock = parse_lock(path)
    if lock is None:
        held: bool | None = any(map(is_held, pids.glob("*")))
    else:
        held = is_held(pids / pid_file_name(lock))
    process = observe_process(lock.pid) if lock else None
    return LockFile(lock, path.suffix == TEMPORARY, held, process)


def pid_file_name(lock: Lock) -> str:
    """As `launch` names it."""
    return f"{lock.hostname}.{lock.pid}"


def is_held(pid_file: Path) -> bool | None:
    """Whether the process that made it lives. None: there is no such file, or no lock on its file system."""
    try:
        handle = os.open(pid_file, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(handle)
    return False


def parse_lock(file: Path) -> Lock | None:
    try:
        content = json.loads(file.read_text())
        taken_at = datetime.fromisoformat(content["timestamp"])
        return Lock(
            int(content["pid"]), content["hostname"], taken_at if taken_at.tzinfo else taken_at.replace(tzinfo=UTC)
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def observe_process(pid: int, proc: Path = Path("/proc")) -> RunningProcess | None:
    """None for one that is gone; a zombie has ended too, and only waits to be collected."""
    try:
        # The command's name, in parentheses, may contain anything.
        state, *fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if state in "ZX":
        return None
    booted_at = next(
        int(line.split()[1]) for line in (proc / "stat").read_text().splitlines() if line.startswith("btime")
    )
    ticks = int(fields[18])
    started_at = datetime.fromtimestamp(booted_at + ticks / os.sysconf("SC_CLK_TCK"), UTC)
    return RunningProcess(started_at, _read_arguments(proc / str(pid)))


def _read_arguments(process: Path) -> tuple[str, ...] | None:
    try:
        raw = (process / "cmdline").read_bytes()
    except OSError:
        return None
    return tuple(raw.decode(errors="replace").split("\0")) if raw else None
