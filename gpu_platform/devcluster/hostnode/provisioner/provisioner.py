"""Follows claims and volumes, and carries out their plan. The agent runs one."""

import asyncio
import logging
import shutil
from pathlib import Path

from gpu_platform.devcluster.hostnode.provisioner.plan import (
    GrowClaim,
    GrowVolume,
    MakeVolume,
    RemoveVolume,
    Write,
    build_class,
    plan_volumes,
)
from gpu_platform.kube import AlreadyExistsError, KubeClient, KubeError, NotFoundError
from gpu_platform.kube.informer import ObjectCache
from gpu_platform.kube.paths import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES

RETRY_SECONDS = 1.0

log = logging.getLogger(__name__)


class Provisioner:
    def __init__(self, client: KubeClient, root: Path) -> None:
        """The client is not the node's: a node may neither make volumes nor change claims."""
        self._client = client
        self._root = root
        self._claims = ObjectCache(client, PERSISTENT_VOLUME_CLAIMS)
        self._volumes = ObjectCache(client, PERSISTENT_VOLUMES)
        self._changed = asyncio.Event()
        for cache in (self._claims, self._volumes):
            cache.on_change(lambda _old, _new: self._changed.set())

    async def run(self) -> None:
        """For ever."""
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
        try:
            await self._client.create(STORAGE_CLASSES.collection(), build_class())
        except AlreadyExistsError:
            return

    async def _pass(self) -> None:
        volumes = {volume["metadata"]["name"]: volume for volume in self._volumes.objects()}
        for write in plan_volumes(self._claims.objects(), volumes, self._root):
            await self._apply(write)

    async def _apply(self, write: Write) -> None:
        try:
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
                        PERSISTENT_VOLUMES.item(volume["metadata"]["name"]),
                        {"preconditions": {"uid": volume["metadata"]["uid"]}},
                    )
        except (AlreadyExistsError, NotFoundError):
            # The watch will show it in a moment.
            return
