"""The cache directory: whole entries appear at once or not at all, whoever dies in between.

An entry is filled in a temporary directory beside its place, under a lock that the kernel drops when the
process dies, and then renamed. Other runs of the same entry wait for the lock and find the entry there.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# How often a run looks whether another run has finished the entry. Chosen by feel.
LOCK_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Store:
    root: Path

    def find(self, entry: str, names: Collection[str]) -> Path | None:
        """The directory of a finished entry that has all the named executables."""
        place = self.root / entry
        return place if all(os.access(place / name, os.X_OK) for name in names) else None

    def create(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)

    def log_path(self, entry: str) -> Path:
        return self.root / f"{entry}.log"

    def ensure(
        self,
        entry: str,
        names: Collection[str],
        fill: Callable[[Path], None],
        *,
        pause: Callable[[float], None],
        on_wait: Callable[[], None],
    ) -> bool:
        """Fills the entry, unless it is there. Returns whether this run filled it, or another was quicker."""
        with self._locked(entry, pause=pause, on_wait=on_wait):
            if self.find(entry, names):
                return False
            self._remove_leftovers(entry)
            temporary = Path(tempfile.mkdtemp(prefix=f"{entry}.", suffix=".tmp", dir=self.root))
            try:
                temporary.chmod(0o755)
                fill(temporary)
                temporary.rename(self.root / entry)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
            return True

    @contextmanager
    def _locked(self, entry: str, *, pause: Callable[[float], None], on_wait: Callable[[], None]) -> Iterator[None]:
        with (self.root / f"{entry}.lock").open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    on_wait()
                    pause(LOCK_POLL_SECONDS)
            yield

    def _remove_leftovers(self, entry: str) -> None:
        """Under the lock, its temporary directories are those of dead runs, and its place is incomplete."""
        shutil.rmtree(self.root / entry, ignore_errors=True)
        for leftover in self.root.glob(f"{entry}.*.tmp"):
            shutil.rmtree(leftover, ignore_errors=True)


def choose_cache_root(environment: Mapping[str, str], home: Path) -> Path:
    """GPU_PLATFORM_CACHE_DIR, else the user's cache directory; XDG says to ignore a relative path."""
    if chosen := environment.get("GPU_PLATFORM_CACHE_DIR"):
        return Path(chosen).absolute() / "tools"
    xdg = Path(environment.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else home / ".cache") / "gpu-platform" / "tools"
