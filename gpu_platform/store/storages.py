"""The guarded writes of a storage: one compare-and-swap takes a mount hold, one gives it back, and a storage is deleted
only while nothing holds it.

How the API uses it, so that no two units ever mount one storage, whatever the number of its processes:

1. `POST` of a unit with mounts: `hold_storages` for all of them, before the unit is created. It raises
   `StorageMissingError` (404) or `StorageHeldError` (409, names the holder), and holds nothing then.
2. Create the unit. When that is refused for good, `release_storages` with what `hold_storages` returned: it gives
   back only what is still as this call took it.
3. `PUT` with mounts: the same, for the storages that the unit does not mount yet, before the guarded PUT of the unit.
   What it no longer mounts needs no call.
4. A process that dies in between leaves a hold that nothing confirmed. The reconciler ends it after
   `HOLD_GRACE`; it confirms the others, and ends each as soon as its unit needs the storage no more.

Recovery that creates a unit from its recorded request calls `hold_storages` first too: a hold may be taken again by the
unit that has it. A unit that kubectl made gets its hold from the reconciler. No unit's pod is ever given a storage that
the unit does not hold.

A deletion is recorded first, so that no stack puts the storage back; the record is removed when a unit mounts the
storage at that moment: then nothing was deleted, and nothing was asked for.
"""

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.mount_holds import (
    ConfirmHold,
    EndHold,
    Holder,
    build_end_of_hold,
    build_hold,
    hold_of,
    is_holdable,
    unit_holder,
)
from gpu_platform.domain.operations import marks_of
from gpu_platform.kube.errors import ConflictError, NotFoundError
from gpu_platform.kube.paths import GPU_STORAGES
from gpu_platform.kube.requests import ObjectClient, as_seen, find, swap_metadata
from gpu_platform.process import pass_point
from gpu_platform.store.ledger import remove_operation

WRITE_TRIES = 8
"""Others write the storage as well: its controller, a few times while it becomes Ready. Chosen by feel."""


class StorageMissingError(Exception):
    """There is no storage of this name, or it is being deleted."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no storage {name!r}")
        self.name = name


class StorageHeldError(Exception):
    """Another unit mounts the storage, or another storage is being filled from it."""

    def __init__(self, name: str, holder: Holder) -> None:
        super().__init__(f"storage {name!r} is in use by {holder}")
        self.name = name
        self.holder = holder


async def hold_storages(
    client: ObjectClient, namespace: str, unit: str, storages: Iterable[str], now: datetime
) -> tuple[Json, ...]:
    """Take all of these for the unit, or none. Returns those that nobody held before, as they were written: what the
    unit's name already held may belong to a unit that lives, and is not for this caller to give back."""
    taken: list[Json] = []
    try:
        for name in sorted(storages):
            taken += await _hold(client, namespace, name, unit_holder(unit), now)
    except Exception:
        await release_storages(client, taken)
        raise
    return tuple(taken)


async def release_storages(client: ObjectClient, taken: Iterable[Json]) -> None:
    """Give back what was just taken, where nobody has confirmed it or taken it again since."""
    for storage in taken:
        await _release(client, storage)


async def try_hold(client: ObjectClient, storage: Json, holder: Holder, now: datetime) -> Json | None:
    """Take this storage as it was seen; None when somebody took or changed it meanwhile."""
    if not is_holdable(storage, holder):
        return None
    return await swap_metadata(client, GPU_STORAGES, storage, build_hold(storage, holder, now))


async def apply_hold_plan(client: ObjectClient, storage: Json, plan: ConfirmHold | EndHold) -> Json | None:
    """None when somebody changed the storage meanwhile: what was decided may be wrong by now."""
    if isinstance(plan, EndHold):
        return await end_hold(client, storage)
    confirmed = {"annotations": {names.ANNOTATION_MOUNTED_UID: plan.uid}}
    return await swap_metadata(client, GPU_STORAGES, storage, confirmed)


async def end_hold(client: ObjectClient, storage: Json) -> Json | None:
    return await swap_metadata(client, GPU_STORAGES, storage, build_end_of_hold())


async def _hold(client: ObjectClient, namespace: str, name: str, holder: Holder, now: datetime) -> tuple[Json, ...]:
    """The storage as it was written; nothing when this holder had it before."""
    for _ in range(WRITE_TRIES):
        storage = await find(client, GPU_STORAGES, name, namespace)
        if storage is None or "deletionTimestamp" in storage["metadata"]:
            raise StorageMissingError(name)
        hold = hold_of(storage)
        if hold is not None and hold.holder != holder:
            raise StorageHeldError(name, hold.holder)
        held = await try_hold(client, storage, holder, now)
        if held is not None:
            return (held,) if hold is None else ()
    raise ConflictError(409, "Conflict", f"storage {name!r} is being written again and again")


async def _release(client: ObjectClient, taken: Json) -> None:
    metadata = taken["metadata"]
    for _ in range(WRITE_TRIES):
        storage = await find(client, GPU_STORAGES, metadata["name"], metadata["namespace"])
        if storage is None or storage["metadata"]["uid"] != metadata["uid"] or hold_of(storage) != hold_of(taken):
            return
        if await end_hold(client, storage) is not None:
            return


async def delete_unused_storage(client: ObjectClient, storage: Json, record: Callable[[Json], Awaitable[Json]]) -> None:
    """`record` writes the wish down and returns its Operation. StorageHeldError: somebody uses the storage, and no wish
    is left behind. ConflictError: it is written again and again."""
    seen = storage
    for _ in range(WRITE_TRIES):
        refuse_held(seen)
        operation = await record(seen)
        pass_point("storage.delete-recorded")
        try:
            await delete_as_seen(client, seen)
            return
        except NotFoundError:
            return
        except ConflictError:
            found = await find(client, GPU_STORAGES, seen["metadata"]["name"], seen["metadata"]["namespace"])
        if found is None or not _is_meant(found, seen):
            return
        if hold_of(found) is not None:
            await remove_operation(client, operation)
        seen = found
    raise ConflictError(409, "Conflict", f"storage {storage['metadata']['name']!r} is being written again and again")


async def delete_as_seen(client: ObjectClient, storage: Json) -> None:
    """Only as it was seen: a hold that came in between wins. It stays, on its way out, until its children are gone."""
    body = {"preconditions": as_seen(storage), "propagationPolicy": "Foreground"}
    await client.delete(GPU_STORAGES.of(storage), body)


def refuse_held(storage: Json) -> None:
    if (hold := hold_of(storage)) is not None:
        raise StorageHeldError(storage["metadata"]["name"], hold.holder)


def _is_meant(found: Json, seen: Json) -> bool:
    """That very one, or one that was put back just before the wish was recorded; not another one of its name."""
    is_same = found["metadata"]["uid"] == seen["metadata"]["uid"]
    return is_same or (marks_of(found) == marks_of(seen) and any(marks_of(seen)))
