"""The directory of a pod, and the volumes in it: which files each has (pure), and writing them as kubelet does."""

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gpu_platform.devcluster.hostnode.sources import (
    CLAIM_PATH,
    CannotStartError,
    NodeFacts,
    Reference,
    Sources,
    content_of,
    find_reference,
    read_field,
    read_resource,
)
from gpu_platform.domain.json_text import Json

DEFAULT_MODE = 0o644
"""As Kubernetes defaults it."""

UID_CHARACTERS = 8
"""Of the pod's uid: 32 random bits are enough for the 200 pods of one node."""


@dataclass(frozen=True)
class VolumeFile:
    path: str
    """Relative to the volume."""
    content: bytes
    mode: int


@dataclass(frozen=True)
class VolumeLink:
    """The volume is a directory that outlives the pod."""

    directory: Path


def plan_volume(
    volume: Json, pod: Json, sources: Sources, facts: NodeFacts
) -> tuple[VolumeFile, ...] | VolumeLink | None:
    """All files that the volume holds, or where they are; `None` when it belongs to the pod's processes and starts
    empty."""
    if "emptyDir" in volume:
        return None
    if "downwardAPI" in volume:
        spec = volume["downwardAPI"]
        return tuple(_downward_files(spec, pod, _mode_of(spec, "defaultMode", DEFAULT_MODE), facts))
    if "projected" in volume:
        return tuple(_projected_files(volume["projected"], pod, sources, facts))
    match find_reference(volume):
        case Reference("Claim") as claim, selector:
            return VolumeLink(Path(os.fsdecode(content_of(claim, selector, sources)[CLAIM_PATH])))
        case reference, selector:
            mode = _mode_of(selector, "defaultMode", DEFAULT_MODE)
            return tuple(_files_of(reference, selector, mode, sources))
    kinds = ", ".join(key for key in volume if key != "name")
    raise CannotStartError(
        f"volume {volume['name']!r} is of kind {kinds}, which the host node does not provide: it has emptyDir, "
        "configMap, secret, downwardAPI, projected and persistentVolumeClaim volumes"
    )


def _projected_files(spec: Json, pod: Json, sources: Sources, facts: NodeFacts) -> Iterator[VolumeFile]:
    mode = _mode_of(spec, "defaultMode", DEFAULT_MODE)
    for part in spec.get("sources") or []:
        if projection := part.get("downwardAPI"):
            yield from _downward_files(projection, pod, mode, facts)
            continue
        match find_reference(part):
            case Reference("Token") as token, projection:
                yield VolumeFile(projection["path"], content_of(token, projection, sources)["token"], mode)
            case reference, projection:
                yield from _files_of(reference, projection, mode, sources)
            case None:
                raise CannotStartError(f"the host node does not project {', '.join(part)}")


def _files_of(reference: Reference, selector: Json, mode: int, sources: Sources) -> Iterator[VolumeFile]:
    content = content_of(reference, selector, sources)
    items: Iterable[Json] = selector.get("items") or [{"key": key, "path": key} for key in content]
    for item in items:
        if item["key"] in content:
            yield VolumeFile(item["path"], content[item["key"]], _mode_of(item, "mode", mode))
        elif not selector.get("optional"):
            raise CannotStartError(
                f"{reference.kind.lower()} {reference.name!r} references non-existent key: {item['key']}"
            )


def _downward_files(spec: Json, pod: Json, mode: int, facts: NodeFacts) -> Iterator[VolumeFile]:
    for item in spec.get("items") or []:
        if reference := item.get("fieldRef"):
            text = read_field(pod, reference["fieldPath"], facts)
        else:
            text = read_resource(pod, {}, item["resourceFieldRef"], facts)
        yield VolumeFile(item["path"], text.encode(), _mode_of(item, "mode", mode))


def _mode_of(spec: Json, field: str, default: int) -> int:
    return default if spec.get(field) is None else int(spec[field])


def directory_name(uid: str) -> str:
    return uid.replace("-", "")[:UID_CHARACTERS]


def is_directory_name(name: str) -> bool:
    """Whether a pod's directory may have this name; others in the root are not ours to delete."""
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


def write_volumes(pod: Json, sources: Sources, facts: NodeFacts, directory: PodDirectory) -> None:
    """Raises `CannotStartError`, and then no volume is half written."""
    volumes = pod["spec"].get("volumes") or []
    planned = [(volume, plan_volume(volume, pod, sources, facts)) for volume in volumes]
    directory.ensure(pod)
    for volume, content in planned:
        place = directory.volume(pod, volume["name"])
        match content:
            case VolumeLink(target):
                link_volume(place, target)
            case tuple(files):
                write_volume(place, files)


def write_volume(directory: Path, files: Iterable[VolumeFile]) -> None:
    """Makes the directory hold exactly these files; one that is right already is not touched."""
    wanted = {directory / file.path: file for file in files}
    for path in [path for path in directory.rglob("*") if not path.is_dir() and path not in wanted]:
        path.unlink()
    for path, file in wanted.items():
        if not path.exists() or path.read_bytes() != file.content:
            _replace(path, file.content)
        path.chmod(file.mode)


def link_volume(directory: Path, target: Path) -> None:
    """Makes the volume a link to that directory: a short path in the pod's own directory, however long the other is."""
    if directory.is_symlink():
        if directory.readlink() == target:
            return
        directory.unlink()
    else:
        directory.rmdir()
    directory.symlink_to(target, target_is_directory=True)


def _replace(path: Path, content: bytes) -> None:
    """Replaces the file at once, so that no process reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"..{path.name}")
    fresh.write_bytes(content)
    fresh.replace(path)
