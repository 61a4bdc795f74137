"""The guarded writes of a unit that the API, its recovery and the provider share.

A unit is never applied: create by POST, change by PUT as it was seen. The storages that it mounts are held for it
before either.
"""

from datetime import datetime

from gpu_platform.domain.json_text import Json
from gpu_platform.kube.errors import KubeError
from gpu_platform.kube.paths import GPU_UNITS
from gpu_platform.kube.requests import ObjectClient, find
from gpu_platform.process import pass_point
from gpu_platform.store.creations import NameTakenError, create_or_adopt
from gpu_platform.store.storages import hold_storages, release_storages


async def find_unit(client: ObjectClient, namespace: str, name: str) -> Json | None:
    return await find(client, GPU_UNITS, name, namespace)


async def create_or_adopt_unit(client: ObjectClient, body: Json, now: datetime) -> Json:
    """Create the unit, or take the one that an earlier try of the same request created. StorageMissingError,
    StorageHeldError: it mounts what is not to be had, and nothing was written."""
    metadata = body["metadata"]
    held = await hold_storages(client, metadata["namespace"], metadata["name"], mounted_storages(body), now)
    pass_point("unit.storages-held")
    try:
        return await create_or_adopt(client, GPU_UNITS, body)
    except NameTakenError:
        await release_storages(client, held)
        raise
    except KubeError as error:
        # Where it is unknown whether the unit exists, it keeps its storages; the reconciler ends holds without a unit.
        if error.wrote_nothing:
            await release_storages(client, held)
        raise


async def replace_unit(client: ObjectClient, unit: Json) -> Json:
    """As it was seen: uid and resourceVersion stand in the body."""
    return await client.replace(GPU_UNITS.item(unit["metadata"]["name"], unit["metadata"]["namespace"]), unit)


async def replace_mounting_unit(client: ObjectClient, before: Json, after: Json, now: datetime) -> Json:
    """As it was seen, with what it mounts anew. What it mounts no more, the reconciler gives back once that is true.
    Errors as of `create_or_adopt_unit`, and ConflictError or NotFoundError."""
    metadata = after["metadata"]
    added = mounted_storages(after) - mounted_storages(before)
    held = await hold_storages(client, metadata["namespace"], metadata["name"], added, now)
    pass_point("unit.storages-added")
    try:
        return await replace_unit(client, after)
    except KubeError as error:
        if error.wrote_nothing:
            await release_storages(client, held)
        raise


def mounted_storages(unit: Json) -> set[str]:
    return {mount["name"] for mount in unit["spec"].get("storageMounts") or ()}
