"""What `ensure_parts` returns: where every executable is and how it got there."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path


class Origin(StrEnum):
    BUILT = "built"
    CACHED = "cached"
    PATH = "path"
    WHEEL = "wheel"


@dataclass(frozen=True)
class Executable:
    name: str
    version: str
    path: Path
    origin: Origin
    took: timedelta | None = None
    """How long this run built it; binaries that are built together share one time."""


@dataclass(frozen=True)
class Parts:
    """`parts["kube-apiserver"]` is its path."""

    executables: tuple[Executable, ...]

    def __getitem__(self, name: str) -> Path:
        for executable in self.executables:
            if executable.name == name:
                return executable.path
        raise KeyError(name)

    @property
    def path_entries(self) -> tuple[Path, ...]:
        """Directories for PATH; those of the cache first, since they can hide no other program."""
        ours = (Origin.BUILT, Origin.CACHED)
        ordered = sorted(self.executables, key=lambda executable: executable.origin not in ours)
        return tuple(dict.fromkeys(executable.path.parent for executable in ordered))
