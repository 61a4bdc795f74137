"""Guarded writes: writes on an object as it was seen, so that a change that came in between wins, and a successor of
its name is safe. Also the ports by which controllers write: every write is fenced by leadership.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, Protocol, TypeVar

from gpu_platform.domain.functions import GPUFunctionStatus
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stock import StockPoolStatus
from gpu_platform.domain.storages import GPUStorageStatus
from gpu_platform.domain.units import GPUUnitStatus
from gpu_platform.kube import AlreadyExistsError, ConflictError, NotFoundError, ResourcePath, UnreachableError
from gpu_platform.kube.requests import ObjectClient, as_seen
from reconciler.child_diff import MANAGER, ChildWrite, CreateChild, DeleteChild, Kind, ReplaceChild
from reconciler.expectations import Place

Status = TypeVar("Status", GPUFunctionStatus, GPUStorageStatus, GPUUnitStatus, StockPoolStatus)
MOVED = (ConflictError, NotFoundError, UnreachableError)

TRANSIENT = (AlreadyExistsError, *MOVED)
"""The world moved, or is not there: looked at again, and no fault of what owns the object."""


class Recorder(Protocol):
    """Kubernetes Events. Never fails its caller."""

    async def record(self, regarding: Json, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None: ...


async def patch_status(writer: ObjectClient, path: ResourcePath, seen: Json, old: Status, new: Status) -> bool:
    """Write the status if it says something new; whether it did. The time of the last write is nothing new.

    Null removes a field; fields of the status that are not ours stay untouched.
    """
    if old.model_copy(update={"last_sync_time": None}) == new.model_copy(update={"last_sync_time": None}):
        return False
    metadata = seen["metadata"]
    fields = new.model_dump(mode="json", by_alias=True)
    await writer.patch(
        path.item(metadata["name"], metadata["namespace"], "status"), {"metadata": as_seen(seen), "status": fields}
    )
    return True


async def delete_seen(writer: ObjectClient, path: ResourcePath, seen: Json, *, unchanged: bool = False) -> None:
    """Delete this very object, with `unchanged` only as it was seen. One that is gone or another is no failure."""
    metadata = seen["metadata"]
    guard = as_seen(seen) if unchanged else {"uid": metadata["uid"]}
    body = {"preconditions": guard, "propagationPolicy": "Background"}
    try:
        await writer.delete(path.item(metadata["name"], metadata["namespace"]), body)
    except (ConflictError, NotFoundError):
        return


async def apply_child_write(
    write: ChildWrite[Kind], paths: Mapping[Kind, ResourcePath], writer: ObjectClient
) -> tuple[Place, Json | None]:
    """The place that was written, and what was seen there before."""
    match write:
        case CreateChild(kind, body):
            await writer.create(paths[kind].collection(body["metadata"]["namespace"]), body, MANAGER)
            return _place_of(kind, body), None
        case ReplaceChild(kind, body):
            metadata = body["metadata"]
            await writer.replace(paths[kind].item(metadata["name"], metadata["namespace"]), body, MANAGER)
            return _place_of(kind, body), body
        case DeleteChild(kind, live):
            await delete_seen(writer, paths[kind], live)
            return _place_of(kind, live), live


def _place_of(kind: StrEnum, child: Json) -> Place:
    return kind, child["metadata"]["namespace"], child["metadata"]["name"]
