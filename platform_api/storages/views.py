"""Storages as their tenants see them: the object, its Events, and the pods whose logs are read."""

from typing import Literal

from gpu_platform.api_models.events import EventView
from gpu_platform.api_models.storages import StorageView
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.mount_holds import mounting_unit_of
from gpu_platform.domain.storages import GPUStorageSpec, GPUStorageStatus, StoragePhase
from gpu_platform.domain.value import fields_of
from platform_api.http.errors import conflict
from platform_api.kube_health import BoundedClient
from platform_api.objects.reads import by_name, by_uid, read_events, read_pods, view_common

Speaker = Literal["preparation", "browser"]


def view_storage(storage: Json, proxy_url: str | None = None) -> StorageView:
    """`proxy_url` is where its file browser answers just now, if it does."""
    spec = GPUStorageSpec.model_validate(storage["spec"])
    status = GPUStorageStatus.of(storage)
    unit = mounting_unit_of(storage)
    # From the hold, not from the status, which follows it.
    mounted = {"mounted_by": (unit,) if unit else ()}
    return StorageView(
        **(view_common(storage, status, StorageView, StoragePhase.PENDING) | fields_of(spec, StorageView) | mounted),
        prepare_status=status.prepare,
        # Nobody is left to correct the status where the reconciler is away.
        accessor_status=status.accessor if proxy_url else status.accessor.model_copy(update={"access_url": None}),
        proxy_url=proxy_url,
    )


async def read_storage_events(client: BoundedClient, storage: Json) -> list[EventView]:
    """Of the storage, its claim, the Job of its preparation and its pods, oldest first."""
    metadata = storage["metadata"]
    pods = await read_pods(client, metadata["namespace"], f"{names.LABEL_STORAGE}={metadata['name']}")
    job = ((storage.get("status") or {}).get("prepare") or {}).get("jobName")
    selectors = [
        *map(by_uid, [storage, *pods]),
        by_name("PersistentVolumeClaim", metadata["name"]),
        *([by_name("Job", job)] if job else []),
    ]
    return await read_events(client, metadata["namespace"], selectors)


async def get_speaking_pod(client: BoundedClient, storage: Json, speaker: Speaker) -> Json:
    """The newest one; 409 while there is none."""
    metadata = storage["metadata"]
    mark = {
        "preparation": names.LABEL_STORAGE_PREPARE,
        "browser": f"{names.LABEL_STORAGE_ACCESSOR}={metadata['uid']}",
    }
    selector = f"{names.LABEL_STORAGE}={metadata['name']},{mark[speaker]}"
    pods = await read_pods(client, metadata["namespace"], selector)
    if not pods:
        raise conflict(f"the {speaker} of the storage {metadata['name']!r} has no logs: it has no pod; see its events")
    return pods[0]
