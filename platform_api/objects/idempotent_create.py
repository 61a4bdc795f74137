"""Idempotent creation: records what is asked for as an Operation, creates the object, and answers replays.

Units, storages, functions, previews and jobs record their requests with the functions here. `Declarations` accepts an
object that takes nothing of others (storages, functions): ledger, object, mark; each step is guarded, and the process
may die after any of them.

| step | what                                       | who repairs it when this process dies right after          |
| ---- | ------------------------------------------ | ---------------------------------------------------------- |
| 1    | check and hash the request; the tenant's limits | nothing was written                                   |
| 2    | record the Operation, if there is none     | the operations controller removes it: nothing was accepted |
| 3    | create the object                          | the operations controller marks it                         |
| 4    | mark the Operation succeeded               | nothing is left to do                                      |
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from gpu_platform.domain.functions import FunctionRequest
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import (
    ACCEPT_SECONDS,
    OperationKind,
    OperationPhase,
    OperationSpec,
    OperationTarget,
    is_made_by,
    operation_name,
    request_hash,
)
from gpu_platform.domain.storages import StorageRequest
from gpu_platform.domain.units import UnitRequest
from gpu_platform.domain.value import RequestError
from gpu_platform.kube import ConflictError, KubeError, NotFoundError, QuotaBusyError, ResourcePath
from gpu_platform.kube.paths import GPU_SPECS, OPERATIONS
from gpu_platform.kube.requests import ObjectClient, delete_that, find
from gpu_platform.process import pass_point
from gpu_platform.store.ledger import (
    NameTakenError,
    Opened,
    build_operation,
    create_or_adopt,
    finish_operation,
    is_final,
    open_operation,
    remove_operation,
    spec_of,
    status_of,
)
from platform_api.auth.keys import Caller
from platform_api.cluster import Cluster
from platform_api.http.errors import (
    NAMESPACE_LIMITS,
    ApiError,
    conflict,
    forbidden,
    from_kube,
    in_progress,
    invalid_field,
)
from platform_api.kube_health import BoundedClient
from platform_api.objects.tenant_limits import ObjectLimits
from platform_api.single_flight import SharedTasks

BEGINNINGS = 3
"""Tries to record an operation that is being removed at the same time."""

REPLAY_SECONDS = 5.0
"""How long a replay waits for the end of the first try."""

FIRST_PAUSE_SECONDS = 0.03
LONGEST_PAUSE_SECONDS = 0.5
Check = Callable[[], Awaitable[None]]
T = TypeVar("T")


def build_creation(
    caller: Caller,
    operation_id: str,
    kind: OperationKind,
    made_kind: str,
    request: UnitRequest | StorageRequest | FunctionRequest,
) -> Json:
    """Only a unit's request is recorded: its claim may outlive this process, and the operations controller makes the
    unit from both. A storage or function that was not made is asked for again."""
    spec = OperationSpec(
        operation_id=operation_id,
        kind=kind,
        request_hash=request_hash(request),
        request=request.to_json() if kind is OperationKind.CREATE_UNIT else {},
        target=OperationTarget(kind=made_kind, namespace=caller.namespace, name=request.name),
    )
    return build_operation(operation_name(caller.tenant, operation_id), caller.namespace, spec)


def target_of(kind: str, item: Json) -> OperationTarget:
    """The target has the object's uid: another object of its name is another request."""
    metadata = item["metadata"]
    return OperationTarget(kind=kind, namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"])


def build_act(
    caller: Caller,
    operation_id: str,
    kind: OperationKind,
    target: OperationTarget,
    request: Json | None = None,
    *,
    name: str | None = None,
) -> Json:
    """Builds the operation on an object that exists. What `request` notes beside the target is not compared with a
    replay. The name follows from the operationID, unless it is given."""
    spec = OperationSpec(
        operation_id=operation_id, kind=kind, request_hash=request_hash(target), request=request or {}, target=target
    )
    return build_operation(name or operation_name(caller.tenant, operation_id), caller.namespace, spec)


async def open_for_tenant(client: ObjectClient, operation: Json) -> Opened:
    """Record it, unless one of its name is recorded; a 403 that says so when the tenant has no namespace."""
    try:
        return await open_operation(client, operation)
    except KubeError as error:
        # 403 where the platform's own rights end at the namespaces that there are.
        if error.status not in (403, 404) or any(word in error.message for word in NAMESPACE_LIMITS):
            raise
        namespace = operation["metadata"]["namespace"]
        if error.status == 404:
            raise forbidden(f"the tenant has no namespace {namespace} yet; ask an operator to make it") from error
        raise forbidden(
            f"the platform has no rights in the namespace {namespace} of this tenant, which may not exist yet; "
            "ask an operator to make it"
        ) from error


def check_replay(recorded: Json, wanted: Json) -> OperationSpec:
    """What was recorded under the operationID; a 409 when that is another request."""
    was, ours = spec_of(recorded), spec_of(wanted)
    if (was.kind, was.request_hash) != (ours.kind, ours.request_hash):
        raise conflict(f"operationID {ours.operation_id!r} was used for another request; choose a new one")
    return was


async def check_catalogue(cluster: Cluster, spec_name: str) -> None:
    """A 400 that names the specs which there are."""
    if await cluster.find(GPU_SPECS, None, spec_name) is None:
        known = ", ".join(sorted(spec["metadata"]["name"] for spec in cluster.specs.objects())) or "none"
        raise invalid_field("specName", f"there is no spec {spec_name!r}; there are: {known}")


def as_refusal(error: ApiError | KubeError | NameTakenError | RequestError, what: str) -> ApiError | None:
    """What the caller is told when nothing was created for certain, so that the operation is undone; None when that is
    unknown. `what` is the kind that was to be created."""
    match error:
        case NameTakenError():
            return conflict(f"there is a {what} {error} already, made by another operation; choose another name")
        case ApiError(status=400 | 403 | 404 | 409):
            return error
        case RequestError(field=field, message=message):
            return invalid_field(field, message)
        case KubeError(is_refusal=True) | QuotaBusyError():
            return from_kube(error)
    return None


def being_undone(operation_id: str) -> ApiError:
    return in_progress(f"operation {operation_id!r} is being undone; try again")


def undone_meanwhile() -> ApiError:
    return in_progress("the operation was undone, because it took too long; try again")


def finished_in_background() -> ApiError:
    return in_progress("Kubernetes is slow: the operation is finished in the background; ask again")


async def carry_out(client: BoundedClient, operation: Json, what: str, act: Callable[[], Awaitable[Json]]) -> Json:
    """Acts for an operation, and removes it after a refusal. What ends without one and without the mark is for the
    operations controller."""
    try:
        async with asyncio.timeout(ACCEPT_SECONDS):
            return await act()
    except TimeoutError:
        raise finished_in_background() from None
    except (ApiError, KubeError, NameTakenError, RequestError) as error:
        refusal = as_refusal(error, what)
        if refusal is None:
            raise
        await remove_operation(client, operation)
        raise refusal from error


class OperationEnds:
    """Operations whose end somebody waits for: however many wait, one asks."""

    def __init__(self, client: BoundedClient) -> None:
        self._client = client
        self._awaited = SharedTasks[str, Json | None]()

    async def wait(self, operation: Json) -> Json | None:
        """The operation once it has ended; None once it was removed; a 503 when neither happens in time."""
        if is_final(operation):
            return operation
        return await self._awaited.join(operation["metadata"]["uid"], lambda: self._poll(operation))

    async def find_made(self, operation: Json, wanted: Json, path: ResourcePath, what: str) -> Json | None:
        """The object of an earlier try of the same request; None when that try came to nothing. A 409 from the deletion
        of the object on."""
        recorded = check_replay(operation, wanted)
        if await self.wait(operation) is None:
            return None
        item = await find(self._client, path, recorded.target.name, recorded.target.namespace)
        # By its marks, not by its uid: what was made again from its stack has a new one.
        is_there = item is not None and is_made_by(item, recorded)
        if item is None or not is_there or "deletionTimestamp" in item["metadata"]:
            # The answer is the same while the object is Terminating and once it is gone: the deletion was accepted.
            state = "is being deleted" if is_there else "has been deleted"
            raise conflict(
                f"operation {recorded.operation_id!r} made the {what} {recorded.target.name!r}, which {state}; "
                f"a new {what} needs a new operationID"
            )
        return item

    async def mark_made(self, operation: Json, path: ResourcePath, item: Json, now: datetime) -> bool:
        """Whether the object stays. Whoever took the operation over meanwhile has the last word: when it was undone,
        so is the object."""
        uid = item["metadata"]["uid"]
        try:
            await finish_operation(self._client, operation, OperationPhase.SUCCEEDED, now, target_uid=uid)
        except (ConflictError, NotFoundError):
            ended = await self.wait(operation)
            if ended is None or status_of(ended).target_uid != uid:
                await self._delete(path, item)
                return False
        return True

    async def _delete(self, path: ResourcePath, item: Json) -> None:
        try:
            await delete_that(self._client, path, item["metadata"])
        except (ConflictError, NotFoundError):
            return

    async def _poll(self, operation: Json) -> Json | None:
        metadata = operation["metadata"]
        deadline = time.monotonic() + REPLAY_SECONDS
        pause = FIRST_PAUSE_SECONDS
        while not is_final(operation):
            if time.monotonic() > deadline:
                raise in_progress("the first try of this operation is still under way; ask again")
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            try:
                operation = await self._client.get(OPERATIONS.of(operation))
            except NotFoundError:
                return None
            if operation["metadata"]["uid"] != metadata["uid"]:
                # That try came to nothing; this is another one.
                return None
        return operation


@dataclass(frozen=True)
class Accepted(Generic[T]):
    item: T
    is_new: bool
    """False: an earlier request made it."""


class Declarations:
    """Of one kind; `what` it is, in words."""

    def __init__(
        self,
        client: BoundedClient,
        limits: ObjectLimits,
        path: ResourcePath,
        what: str,
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._limits = limits
        self._path = path
        self._what = what
        self._now = now
        self._ends = OperationEnds(client)

    async def accept(self, caller: Caller, wanted: Json, body: Json, check: Check) -> Accepted[Json]:
        """`wanted` is the Operation, `body` the object that it makes, once `check` has found what both need."""
        for _ in range(BEGINNINGS):
            opened = await self._limits.find_replay(caller, wanted) or await open_for_tenant(self._client, wanted)
            if opened.is_new:
                pass_point(f"api.{self._what}-recorded")
                return Accepted(await self._carry_out(opened.operation, body, check), is_new=True)
            item = await self._ends.find_made(opened.operation, wanted, self._path, self._what)
            if item is not None:
                return Accepted(item, is_new=False)
        raise being_undone(wanted["spec"]["operationID"])

    async def _carry_out(self, operation: Json, body: Json, check: Check) -> Json:
        """Steps 3 and 4."""

        async def create() -> Json:
            await check()
            item = await create_or_adopt(self._client, self._path, body)
            pass_point(f"api.{self._what}-created")
            return item

        item = await carry_out(self._client, operation, self._what, create)
        if not await self._ends.mark_made(operation, self._path, item, self._now()):
            raise undone_meanwhile()
        return item
