"""Advisory file locks: the kernel frees them with their holder, so that a lock is a proof of life."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

RETRY_SECONDS = 0.02


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Wait for the lock, hold it, free it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def try_exclusive_lock(path: Path, patience_seconds: float = 0.0) -> Iterator[bool]:
    """Take the lock if it is free, or becomes free within this time; say whether it was taken."""
    with path.open("w") as file:
        yield _take(file, time.monotonic() + patience_seconds)


def _take(file: IO[str], until: float) -> bool:
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(RETRY_SECONDS)


def is_locked(path: Path) -> bool:
    """Takes the lock for a moment if it is free."""
    if not path.exists():
        return False
    with try_exclusive_lock(path) as was_free:
        return not was_free
