"""Deleting a storage that nobody uses. The wish is recorded first, so that nobody puts it back, and taken back when
somebody mounts the storage at that moment: then nothing was deleted, and nothing was asked for.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from gpu_platform.adapters.fault_points import pass_point
from gpu_platform.domain.mount_holds import hold_of
from gpu_platform.domain.operations import marks_of
from gpu_platform.kube.errors import ConflictError, NotFoundError
from gpu_platform.kube.paths import GPU_STORAGES
from gpu_platform.kube.requests import Deleter, as_seen, find
from gpu_platform.store.ledger import LedgerClient, remove_operation
from gpu_platform.store.storages import StorageHeldError

Json = dict[str, Any]

DELETE_TRIES = 8
"""Others write the storage as well: its controller, a few times while it becomes Ready. Chosen by feel."""


async def delete_unused_storage(client: LedgerClient, storage: Json, record: Callable[[Json], Awaitable[Json]]) -> None:
    """`record` writes the wish down and returns its Operation. StorageHeldError: somebody uses the storage, and no wish
    is left behind. ConflictError: it is written again and again."""
    seen = storage
    for _ in range(DELETE_TRIES):
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


async def delete_as_seen(client: Deleter, storage: Json) -> None:
    """Only as it was seen: a hold that came in between wins. It stays, on its way out, until its children are gone."""
    metadata = storage["metadata"]
    body = {"preconditions": as_seen(storage), "propagationPolicy": "Foreground"}
    await client.delete(GPU_STORAGES.item(metadata["name"], metadata["namespace"]), body)


def refuse_held(storage: Json) -> None:
    if (hold := hold_of(storage)) is not None:
        raise StorageHeldError(storage["metadata"]["name"], hold.holder)


def _is_meant(found: Json, seen: Json) -> bool:
    """That very one, or one that was put back just before the wish was recorded; not another one of its name."""
    is_same = found["metadata"]["uid"] == seen["metadata"]["uid"]
    return is_same or (marks_of(found) == marks_of(seen) and any(marks_of(seen)))
