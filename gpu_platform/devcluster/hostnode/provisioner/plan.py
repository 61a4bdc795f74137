"""What claims of our class still lack. Pure.

The scheme of Kubernetes' external provisioners: a PersistentVolume that names the claim is bound to it by Kubernetes'
own controller; a claim that asks for more gets it; a volume whose claim is gone goes with its directory, unless its
policy is to stay.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_platform.kube.client import Json

CLASS_NAME = "host-path"
PROVISIONER = "runtime.lokiwager.io/host-path"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


@dataclass(frozen=True)
class MakeVolume:
    directory: Path
    body: Json


@dataclass(frozen=True)
class GrowVolume:
    volume: str
    size: str


@dataclass(frozen=True)
class GrowClaim:
    namespace: str
    claim: str
    size: str


@dataclass(frozen=True)
class RemoveVolume:
    volume: Json
    directory: Path


Write = MakeVolume | GrowVolume | GrowClaim | RemoveVolume


def build_class() -> Json:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS_NAME, "annotations": {DEFAULT_CLASS: "true"}},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
    }


def plan_volumes(claims: Iterable[Json], volumes: Mapping[str, Json], root: Path) -> tuple[Write, ...]:
    """
    | claim                                    | its volume                     | then                         |
    | ---------------------------------------- | ------------------------------ | ---------------------------- |
    | of another class, or on its way out      | any                            | nothing                      |
    | of our class                             | missing                        | make it, named after the claim |
    | bound, asks for another size             | has the old size               | give the volume the new size |
    | bound, asks for another size             | has the new size               | say so in the claim's status |
    | gone                                     | Released, policy Delete        | remove directory and volume  |
    | gone                                     | Released, policy Retain        | nothing                      |
    """
    writes: list[Write] = []
    for claim in claims:
        if claim["spec"].get("storageClassName") == CLASS_NAME and "deletionTimestamp" not in claim["metadata"]:
            writes += _plan_claim(claim, volumes.get(volume_name(claim)), root)
    for volume in volumes.values():
        is_ours = (volume["metadata"].get("annotations") or {}).get(PROVISIONED_BY) == PROVISIONER
        is_left = (volume.get("status") or {}).get("phase") == "Released"
        if is_ours and is_left and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            writes.append(RemoveVolume(volume, Path(volume["spec"]["hostPath"]["path"])))
    return tuple(writes)


def volume_name(claim: Json) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def _plan_claim(claim: Json, volume: Json | None, root: Path) -> list[Write]:
    wanted = claim["spec"]["resources"]["requests"]["storage"]
    if volume is None:
        directory = root / claim["metadata"]["uid"]
        return [MakeVolume(directory, _build_volume(claim, directory, wanted))]
    status = claim.get("status") or {}
    if status.get("phase") != "Bound":
        return []
    if volume["spec"]["capacity"]["storage"] != wanted:
        return [GrowVolume(volume["metadata"]["name"], wanted)]
    if (status.get("capacity") or {}).get("storage") != wanted:
        return [GrowClaim(claim["metadata"]["namespace"], claim["metadata"]["name"], wanted)]
    return []


def _build_volume(claim: Json, directory: Path, size: str) -> Json:
    metadata = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume_name(claim), "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": claim["spec"]["accessModes"],
            "storageClassName": CLASS_NAME,
            "persistentVolumeReclaimPolicy": "Delete",
            # On every node, simulated ones included: on those nothing runs that could miss it.
            "hostPath": {"path": str(directory), "type": "Directory"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
        },
    }
