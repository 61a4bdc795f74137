"""Whether a stack's lock may be removed: only when its holder is provably gone.

Pulumi's locks have no lifetime. One that a killed process left stays for ever, and nothing looks at a lock again while
state is written: to remove a live holder's lock is to have two writers.
"""

import json
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

CLOCK_SLACK = timedelta(seconds=5)
"""The kernel counts a process's start from boot, and boot by a clock that is set now and then."""


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
    """None: they cannot be read, so it may be anybody."""


def may_remove(
    lock: Lock | None, stack: str, hostname: str, holder: RunningProcess | None, *, lease_expired: bool
) -> bool:
    """
    | lock | its process | remove |
    |---|---|---|
    | unreadable, or of another host | cannot be asked | when the lease has expired |
    | of this host | gone | yes |
    | of this host | began after the lock was taken, and works on something else: the pid was given out again | yes |
    | of this host | any other | no, whatever the lease says |
    """
    if lock is None or lock.hostname != hostname:
        return lease_expired
    if holder is None:
        return True
    began_later = holder.started_at > lock.taken_at + CLOCK_SLACK
    return began_later and holder.arguments is not None and stack not in holder.arguments


def remove_dead_locks(directory: Path, stack: str, *, lease_expired: bool) -> bool:
    """True when there were locks and none is left. Removes the very files that it looked at, and no later ones."""
    files = sorted(directory.glob("*.json"))
    hostname = socket.gethostname()
    for file in files:
        lock = parse_lock(file)
        holder = observe_process(lock.pid) if lock else None
        if may_remove(lock, stack, hostname, holder, lease_expired=lease_expired):
            file.unlink(missing_ok=True)
            file.with_name(f"{file.name}.attrs").unlink(missing_ok=True)
    return bool(files) and not any(directory.glob("*.json"))


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
