"""Advisory file locks: the kernel frees them with their holder, so that a lock is a proof of life."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Wait for the lock, hold it, free it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def try_exclusive_lock(path: Path) -> Iterator[bool]:
    """Take the lock if it is free; say whether it was."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def is_locked(path: Path) -> bool:
    if not path.exists():
        return False
    with try_exclusive_lock(path) as was_free:
        return not was_free
