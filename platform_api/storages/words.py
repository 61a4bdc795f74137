"""What storages have to say: what happened to them, and what their containers have written."""

from typing import Any, Literal

from gpu_platform.domain import names
from platform_api.bounded_client import BoundedClient
from platform_api.events import EventView, by_name, by_uid, read_events
from platform_api.http.errors import conflict
from platform_api.objects.reads import read_pods

Json = dict[str, Any]

Speaker = Literal["preparation", "browser"]


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
