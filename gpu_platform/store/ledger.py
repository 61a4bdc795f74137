"""The ledger: Operations as create-if-absent records, ended once by compare-and-swap.

Whoever acts for an operation (the API that accepted it, later a provider or the operations controller) writes through
here, so that all of them agree on what a record means.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of, build_object
from gpu_platform.domain.operations import (
    FINAL_PHASES,
    OperationKind,
    OperationPhase,
    OperationSpec,
    OperationStatus,
    OperationTarget,
    delete_operation_name,
    marks_of,
    operation_name,
    request_hash,
)
from gpu_platform.kube.errors import AlreadyExistsError, ConflictError, KubeError, NotFoundError
from gpu_platform.kube.paths import OPERATIONS, ResourcePath
from gpu_platform.kube.requests import ObjectClient, as_seen, delete_that, find

CREATE_TRIES = 5

DELETIONS = {
    "GPUUnit": OperationKind.DELETE_UNIT,
    "GPUFunction": OperationKind.DELETE_FUNCTION,
    "GPUStorage": OperationKind.DELETE_STORAGE,
    "StockPool": OperationKind.DELETE_STOCK_POOL,
}


class NameTakenError(Exception):
    """An object of this name exists, and another operation created it."""


@dataclass(frozen=True)
class Opened:
    operation: Json
    is_new: bool
    """False: it was there already, perhaps from another request."""


def build_operation(name: str, namespace: str, spec: OperationSpec) -> Json:
    return build_object("Operation", name, namespace, spec)


def build_deletion(item: Json, tenant: str) -> Json:
    """The operation that asks for the end of this very object. Once it is recorded, nobody puts the object back."""
    metadata = item["metadata"]
    target = OperationTarget(
        kind=item["kind"], namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"]
    )
    name = delete_operation_name(tenant, metadata["uid"])
    spec = OperationSpec(
        operation_id=name, kind=DELETIONS[item["kind"]], request_hash=request_hash(target), target=target
    )
    return build_operation(name, metadata["namespace"], spec)


async def open_operation(client: ObjectClient, operation: Json) -> Opened:
    """Records the operation, unless one of its name is recorded. NotFoundError: there is no such namespace."""
    return Opened(*await create_or_find(client, OPERATIONS, operation))


async def create_or_adopt(client: ObjectClient, path: ResourcePath, body: Json) -> Json:
    """Creates the object, or returns the one that an earlier try of the same operation created."""
    item, is_new = await create_or_find(client, path, body)
    if not is_new and (marks_of(item) != marks_of(body) or "deletionTimestamp" in item["metadata"]):
        raise NameTakenError(body["metadata"]["name"])
    return item


async def create_or_find(client: ObjectClient, path: ResourcePath, body: Json) -> tuple[Json, bool]:
    """Returns the object that has the name, and whether this call created it."""
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    for _ in range(CREATE_TRIES):
        try:
            return await client.create(path.collection(namespace), body), True
        except KubeError as error:
            is_taken = isinstance(error, AlreadyExistsError)
            # The API server looks at the quota first, which hides that the name is taken.
            if not is_taken and not error.is_about_quota:
                raise
            found = await find(client, path, name, namespace)
            # None: it was deleted between the two requests.
            if found is not None:
                return found, False
            if not is_taken:
                raise
    raise ConflictError(409, "Conflict", f"{path.plural}: {name} is created and deleted again and again")


async def delete_on_record(
    client: ObjectClient, path: ResourcePath, item: Json, record: Callable[[Json], Awaitable[object]]
) -> None:
    """Delete this object, once `record` has written down that somebody asked for it. If it was put back just before
    that was written, the one that was put back is meant as well; another one of its name is not."""
    seen: Json | None = item
    while seen is not None:
        await record(seen)
        try:
            await delete_that(client, path, seen["metadata"])
            return
        except (ConflictError, NotFoundError):
            found = await find(client, path, seen["metadata"]["name"], seen["metadata"]["namespace"])
            is_it = found is not None and marks_of(found) == marks_of(seen) and any(marks_of(seen))
            seen = found if is_it else None


async def finish_operation(
    client: ObjectClient,
    operation: Json,
    phase: OperationPhase,
    now: datetime,
    *,
    target_uid: str | None = None,
    expires_at: datetime | None = None,
) -> Json:
    """End it as it was seen; ConflictError or NotFoundError when somebody else has written or removed it since."""
    status = OperationStatus(phase=phase, finished_at=now, target_uid=target_uid, expires_at=expires_at)
    return await patch_operation_status(client, operation, status)


async def settle_creation(client: ObjectClient, item: Json, tenant: str, now: datetime) -> None:
    """Mark the operation that made this object of a tenant, if nobody has yet. Once the object is gone, nothing else
    says that it ever was: the operation would be repeated or forgotten."""
    operation_id = annotations_of(item).get(names.ANNOTATION_OPERATION_ID)
    if operation_id is None:
        return
    metadata = item["metadata"]
    operation = await find(client, OPERATIONS, operation_name(tenant, operation_id), metadata["namespace"])
    if operation is None or is_final(operation):
        return
    # If its owner, or the operations controller, was faster: either marks this object.
    with suppress(ConflictError, NotFoundError):
        await finish_operation(client, operation, OperationPhase.SUCCEEDED, now, target_uid=metadata["uid"])


async def patch_operation_status(client: ObjectClient, operation: Json, status: OperationStatus) -> Json:
    body = {"metadata": as_seen(operation), "status": status.to_json()}
    return await client.patch(OPERATIONS.of(operation, "status"), body)


async def trim_operation(client: ObjectClient, operation: Json) -> Json:
    """Drops the recorded request of an operation that has ended; a guarded write."""
    return await client.patch(OPERATIONS.of(operation), {"metadata": as_seen(operation), "spec": {"request": None}})


async def remove_operation(client: ObjectClient, operation: Json) -> bool:
    """Forget it as it was seen: nothing was accepted, the same operationID may try again. False: somebody was
    faster."""
    try:
        await client.delete(OPERATIONS.of(operation), {"preconditions": as_seen(operation)})
    except (ConflictError, NotFoundError):
        return False
    return True


def spec_of(operation: Json) -> OperationSpec:
    return OperationSpec.model_validate(operation["spec"])


def status_of(operation: Json) -> OperationStatus:
    return OperationStatus.of(operation)


def is_final(operation: Json) -> bool:
    return status_of(operation).phase in FINAL_PHASES
