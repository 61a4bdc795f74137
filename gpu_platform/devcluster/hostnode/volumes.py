"""The files of a volume, planned from the objects behind it. Pure; `directory` writes them."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gpu_platform.devcluster.hostnode.launch.errors import CannotStartError
from gpu_platform.devcluster.hostnode.launch.fields import NodeFacts, read_field, read_resource
from gpu_platform.devcluster.hostnode.sources import (
    CLAIM_PATH,
    Reference,
    Sources,
    claim,
    config_map,
    content_of,
    secret,
    token,
)
from gpu_platform.kube.client import Json

DEFAULT_MODE = 0o644
"""As Kubernetes defaults it."""


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
    if spec := volume.get("persistentVolumeClaim"):
        content = content_of(claim(spec["claimName"]), sources, optional=False) or {}
        return VolumeLink(Path(os.fsdecode(content[CLAIM_PATH])))
    if spec := volume.get("configMap"):
        return tuple(_files_of(config_map(spec["name"]), spec, _default_mode(spec), sources))
    if spec := volume.get("secret"):
        return tuple(_files_of(secret(spec["secretName"]), spec, _default_mode(spec), sources))
    if "downwardAPI" in volume:
        spec = volume["downwardAPI"]
        return tuple(_downward_files(spec, pod, _default_mode(spec), facts))
    if "projected" in volume:
        spec = volume["projected"]
        return tuple(_projected_files(spec, pod, sources, facts))
    kinds = ", ".join(key for key in volume if key != "name")
    raise CannotStartError(
        f"volume {volume['name']!r} is of kind {kinds}, which the host node does not provide: it has emptyDir, "
        "configMap, secret, downwardAPI, projected and persistentVolumeClaim volumes"
    )


def _default_mode(spec: Json) -> int:
    mode = spec.get("defaultMode")
    return DEFAULT_MODE if mode is None else int(mode)


def _projected_files(spec: Json, pod: Json, sources: Sources, facts: NodeFacts) -> Iterator[VolumeFile]:
    mode = _default_mode(spec)
    for part in spec.get("sources") or []:
        if projection := part.get("configMap"):
            yield from _files_of(config_map(projection["name"]), projection, mode, sources)
        elif projection := part.get("secret"):
            yield from _files_of(secret(projection["name"]), projection, mode, sources)
        elif projection := part.get("downwardAPI"):
            yield from _downward_files(projection, pod, mode, facts)
        elif projection := part.get("serviceAccountToken"):
            content = content_of(token(projection), sources, optional=False) or {}
            yield VolumeFile(projection["path"], content["token"], mode)
        else:
            raise CannotStartError(f"the host node does not project {', '.join(part)}")


def _files_of(reference: Reference, selector: Json, mode: int, sources: Sources) -> Iterator[VolumeFile]:
    optional = bool(selector.get("optional"))
    content = content_of(reference, sources, optional=optional) or {}
    items: Iterable[Json] = selector.get("items") or [{"key": key, "path": key} for key in content]
    for item in items:
        if item["key"] in content:
            yield VolumeFile(item["path"], content[item["key"]], _item_mode(item, mode))
        elif not optional:
            raise CannotStartError(
                f"{reference.kind.lower()} {reference.name!r} references non-existent key: {item['key']}"
            )


def _downward_files(spec: Json, pod: Json, mode: int, facts: NodeFacts) -> Iterator[VolumeFile]:
    for item in spec.get("items") or []:
        if reference := item.get("fieldRef"):
            text = read_field(pod, reference["fieldPath"], facts)
        else:
            text = read_resource(pod, {}, item["resourceFieldRef"], facts)
        yield VolumeFile(item["path"], text.encode(), _item_mode(item, mode))


def _item_mode(item: Json, mode: int) -> int:
    return mode if item.get("mode") is None else int(item["mode"])
