"""Volumes out of directories of this machine: a storage class for the embedded cluster, and what serves it.

The scheme of Kubernetes' external provisioners: a PersistentVolume that names the PVC is bound to it by Kubernetes'
own controller; a PVC that asks for more gets it; a volume whose PVC was deleted is deleted with its directory, unless
its policy is to stay. The agent runs one.
"""

import asyncio
import logging
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpu_platform.domain.json_text import Json
from gpu_platform.kube import AlreadyExistsError, KubeClient, KubeError, NotFoundError
from gpu_platform.kube.informer import ObjectCache
from gpu_platform.kube.paths import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES

CLASS_NAME = "host-path"
PROVISIONER = "runtime.lokiwager.io/host-path"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
RETRY_SECONDS = 1.0
log = logging.getLogger(__name__)


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


class Provisioner:
    def __init__(self, client: KubeClient, root: Path) -> None:
        """The client is not the node's: a node may neither create volumes nor change PVCs."""
        self._client = client
        self._root = root
        self._claims = ObjectCache(client, PERSISTENT_VOLUME_CLAIMS)
        self._volumes = ObjectCache(client, PERSISTENT_VOLUMES)
        self._changed = asyncio.Event()
        for cache in (self._claims, self._volumes):
            cache.on_change(lambda _old, _new: self._changed.set())

    async def run(self) -> None:
        """Serves volumes until cancelled."""
        async with asyncio.TaskGroup() as group:
            for work in (self._claims.run(), self._volumes.run(), self._serve()):
                group.create_task(work)

    async def _serve(self) -> None:
        await self._claims.wait_synced()
        await self._volumes.wait_synced()
        while True:
            self._changed.clear()
            try:
                await self._ensure_class()
                await self._pass()
            except KubeError as error:
                log.warning("volumes are not served: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            await self._changed.wait()

    async def _ensure_class(self) -> None:
        with suppress(AlreadyExistsError):
            await self._client.create(STORAGE_CLASSES.collection(), build_class())

    async def _pass(self) -> None:
        volumes = {volume["metadata"]["name"]: volume for volume in self._volumes.objects()}
        for write in plan_volumes(self._claims.objects(), volumes, self._root):
            await self._apply(write)

    async def _apply(self, write: Write) -> None:
        # What another writer did first, the watch shows in a moment.
        with suppress(AlreadyExistsError, NotFoundError):
            match write:
                case MakeVolume(directory, body):
                    directory.mkdir(parents=True, exist_ok=True)
                    await self._client.create(PERSISTENT_VOLUMES.collection(), body)
                case GrowVolume(volume, size):
                    body = {"spec": {"capacity": {"storage": size}}}
                    await self._client.patch(PERSISTENT_VOLUMES.item(volume), body)
                case GrowClaim(namespace, claim, size):
                    path = PERSISTENT_VOLUME_CLAIMS.item(claim, namespace, "status")
                    await self._client.patch(path, {"status": {"capacity": {"storage": size}}})
                case RemoveVolume(volume, directory):
                    await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
                    await self._client.delete(
                        PERSISTENT_VOLUMES.of(volume), {"preconditions": {"uid": volume["metadata"]["uid"]}}
                    )
