"""The mark by which the leftovers of a cluster are found, and the end of a log."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

CLUSTER_MARK = "GPU_PLATFORM_DEV_CLUSTER"
"""Environment variable that every process of a cluster carries: its value is the cluster's id."""

SWEEPS = 10
"""A process may fork while it is looked for; but there has to be an end."""

LINES = 5
LINE_LENGTH = 400
TAIL_BYTES = 64 * 1024


def find_marked(name: str, value: str) -> Iterator[int]:
    """Processes that were started with `name=value` in their environment: a proof that no pid file gives."""
    mark = f"{name}={value}".encode()
    own = os.getpid()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != own and _carries(entry, mark):
            yield int(entry.name)


def kill_marked(name: str, value: str) -> int:
    """Kill every process that carries the mark, also those it starts meanwhile; the number of them."""
    killed: set[int] = set()
    for _ in range(SWEEPS):
        found = set(find_marked(name, value))
        if not found:
            break
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= found
    return len(killed)


def _carries(process: Path, mark: bytes) -> bool:
    try:
        return mark in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        # It ended meanwhile, or belongs to another user.
        return False


def last_words(log: Path, since: int = 0) -> str:
    """The last lines after the first `since` bytes, which an earlier run wrote; each on a line of its own."""
    try:
        with log.open("rb") as stream:
            end = stream.seek(0, 2)
            stream.seek(max(since, end - TAIL_BYTES))
            text = stream.read().decode(errors="replace")
    except FileNotFoundError:
        text = ""
    lines = [line.rstrip()[:LINE_LENGTH] for line in text.splitlines() if line.strip()]
    return "\n".join(f"    {line}" for line in lines[-LINES:]) or "    (it said nothing)"
