"""Guarded writes: writes on an object as it was seen, so that a change that came in between wins, and a successor of
its name is safe. Plans of all controllers name them as values; `apply_write` sends one. Each is fenced by leadership:
the client raises `NotLeaderError` instead of writing once this process no longer leads.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from gpu_platform.domain.functions import GPUFunctionStatus
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stock import StockPoolStatus
from gpu_platform.domain.storages import GPUStorageStatus
from gpu_platform.domain.units import GPUUnitStatus
from gpu_platform.kube import AlreadyExistsError, ConflictError, NotFoundError, UnreachableError
from gpu_platform.kube.paths import PATH_OF_KIND
from gpu_platform.kube.requests import ObjectClient, as_seen
from reconciler.expectations import OwnWrites, Place, place_of

Status = TypeVar("Status", GPUFunctionStatus, GPUStorageStatus, GPUUnitStatus, StockPoolStatus)
FIELD_MANAGER = "gpu-platform-reconciler"
MANAGER = {"fieldManager": FIELD_MANAGER}
MOVED = (ConflictError, NotFoundError, UnreachableError)

TRANSIENT = (AlreadyExistsError, *MOVED)
"""The world moved, or is not there: looked at again, and no fault of what owns the object."""


@dataclass(frozen=True)
class CreateObject:
    kind: str
    body: Json


@dataclass(frozen=True)
class ReplaceObject:
    """Replaces the object as it was seen: uid and resourceVersion are in the body."""

    kind: str
    body: Json


@dataclass(frozen=True)
class PatchObject:
    kind: str
    seen: Json
    changes: Json
    unchanged: bool = True
    """False: also when another writer changed it meanwhile."""


@dataclass(frozen=True)
class DeleteObject:
    """Deletes this very object. That it is gone, or another one has its name, is no failure."""

    kind: str
    seen: Json
    unchanged: bool = False
    """True: only as it was seen, so that a change that came in between wins."""

    after_children: bool = False
    """True: it stays, on its way out, until its children are gone."""


ObjectWrite = CreateObject | ReplaceObject | PatchObject | DeleteObject


class Recorder(Protocol):
    """Kubernetes Events. Never fails its caller."""

    async def record(self, regarding: Json, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None: ...


async def write_status(
    writer: ObjectClient, own_writes: OwnWrites, kind: str, seen: Json, old: Status, new: Status
) -> bool:
    """Writes the status if it says something new; returns whether it did. The time of the last write is nothing new.

    Null removes a field; fields of the status that are not ours stay untouched.
    """
    if old.model_copy(update={"last_sync_time": None}) == new.model_copy(update={"last_sync_time": None}):
        return False
    path = PATH_OF_KIND[kind].of(seen, "status")
    await writer.patch(path, {"metadata": as_seen(seen), "status": new.model_dump(mode="json", by_alias=True)})
    own_writes.remember(place_of(kind, seen), seen)
    return True


async def apply_write(write: ObjectWrite, writer: ObjectClient) -> tuple[Place, Json | None]:
    """Sends the write. Returns the place that was written, and what was seen there before."""
    path = PATH_OF_KIND[write.kind]
    match write:
        case CreateObject(kind, body):
            await writer.create(path.collection(body["metadata"].get("namespace")), body, MANAGER)
            return place_of(kind, body), None
        case ReplaceObject(kind, seen):
            await writer.replace(path.of(seen), seen, MANAGER)
        case PatchObject(kind, seen, changes):
            metadata = {**_guard(seen, unchanged=write.unchanged), **changes.get("metadata", {})}
            await writer.patch(path.of(seen), {**changes, "metadata": metadata})
        case DeleteObject(kind, seen):
            preconditions = _guard(seen, unchanged=write.unchanged)
            with suppress(ConflictError, NotFoundError):
                propagation = "Foreground" if write.after_children else "Background"
                body = {"preconditions": preconditions, "propagationPolicy": propagation}
                await writer.delete(path.of(seen), body)
    return place_of(kind, seen), seen


def _guard(seen: Json, *, unchanged: bool) -> Json:
    return as_seen(seen) if unchanged else {"uid": seen["metadata"]["uid"]}
