"""Where a pod lives on disk: short paths, so that a Unix socket in any volume stays under its 107 characters.

The worker of a pod owns it. Names are computed purely; `ensure`, `write_volume` and `remove` touch the disk.
"""

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpu_platform.devcluster.hostnode.volumes import VolumeFile
from gpu_platform.kube.client import Json

UID_CHARACTERS = 8
"""Of the pod's uid: 32 random bits are enough for the 200 pods of one node."""


def directory_name(uid: str) -> str:
    return uid.replace("-", "")[:UID_CHARACTERS]


def is_directory_name(name: str) -> bool:
    """Whatever else lies in the root is not ours to remove."""
    return re.fullmatch(f"[0-9a-f]{{{UID_CHARACTERS}}}", name) is not None


@dataclass(frozen=True)
class PodDirectory:
    path: Path

    @property
    def home(self) -> Path:
        return self.path / "home"

    @property
    def scratch(self) -> Path:
        """The processes' `TMPDIR`."""
        return self.path / "tmp"

    def volume(self, pod: Json, name: str) -> Path:
        """Numbered, because a volume's name may have 63 characters."""
        names = [volume["name"] for volume in pod["spec"].get("volumes") or []]
        return self.path / str(names.index(name))

    def log(self, container: str, attempt: int) -> Path:
        return self.path / "logs" / container / f"{attempt}.log"

    def forget_logs(self, container: str, before: int) -> None:
        """Only the newest attempt and the one before it can be asked for."""
        for path in (self.path / "logs" / container).glob("*.log*"):
            if int(path.name.partition(".")[0]) < before:
                path.unlink()

    def termination_message(self, container: str) -> Path:
        return self.path / "end" / container

    def ensure(self, pod: Json) -> None:
        volumes = (self.volume(pod, volume["name"]) for volume in pod["spec"].get("volumes") or [])
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for directory in (self.home, self.scratch, self.path / "end", *volumes):
            directory.mkdir(exist_ok=True)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def write_volume(directory: Path, files: Iterable[VolumeFile]) -> None:
    """Make the directory hold exactly these files; one that is right already is not touched."""
    wanted = {directory / file.path: file for file in files}
    for path in [path for path in directory.rglob("*") if not path.is_dir() and path not in wanted]:
        path.unlink()
    for path, file in wanted.items():
        if not path.exists() or path.read_bytes() != file.content:
            _replace(path, file.content)
        path.chmod(file.mode)


def link_volume(directory: Path, target: Path) -> None:
    """Make the volume that directory. A short path in the pod's own directory, however long the other one is."""
    if directory.is_symlink():
        if directory.readlink() == target:
            return
        directory.unlink()
    else:
        directory.rmdir()
    directory.symlink_to(target, target_is_directory=True)


def _replace(path: Path, content: bytes) -> None:
    """At once, so that no process reads half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"..{path.name}")
    fresh.write_bytes(content)
    fresh.replace(path)
