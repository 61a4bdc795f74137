"""Accepting a function: ledger, function, mark; each step guarded, each safe to die after.

| step | what                                       | who repairs it when this process dies right after          |
| ---- | ------------------------------------------ | ---------------------------------------------------------- |
| 1    | check and hash the request                 | nothing was written                                        |
| 2    | record the Operation, if there is none     | the operations controller removes it: nothing was accepted |
| 3    | create the function                        | the operations controller marks it                         |
| 4    | mark the Operation succeeded               | nothing is left to do                                      |
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpu_platform.adapters.creations import NameTakenError, create_or_adopt
from gpu_platform.adapters.fault_points import pass_point
from gpu_platform.adapters.kube import ConflictError, KubeError, NotFoundError
from gpu_platform.adapters.kube.paths import GPU_FUNCTIONS
from gpu_platform.adapters.kube.requests import delete_that, find
from gpu_platform.adapters.ledger import build_operation, finish_operation, remove_operation, status_of
from gpu_platform.domain.function_requests import FunctionRequest, build_function, normalise_function
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
from platform_api.cluster import Cluster
from platform_api.functions.schemas import CreateFunction
from platform_api.http.errors import ApiError, conflict, in_progress
from platform_api.keys.key_ring import Caller
from platform_api.tenant_operations import (
    BEGINNINGS,
    OperationEnds,
    as_refusal,
    check_catalogue,
    check_replay,
    open_for_tenant,
)

Json = dict[str, Any]


@dataclass(frozen=True)
class Accepted:
    function: Json
    is_new: bool


class FunctionAcceptance:
    def __init__(self, cluster: Cluster, now: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._now = now
        self._ends = OperationEnds(self._client)

    async def accept(self, caller: Caller, body: CreateFunction) -> Accepted:
        request = normalise_function(body.to_request())
        wanted = build_creation(caller, body.operation_id, request)
        for _ in range(BEGINNINGS):
            opened = await open_for_tenant(self._client, wanted)
            if opened.is_new:
                pass_point("api.function-recorded")
                return Accepted(await self._carry_out(opened.operation, request), is_new=True)
            if (function := await self._replay(opened.operation, wanted)) is not None:
                return Accepted(function, is_new=False)
        raise in_progress(f"operation {body.operation_id!r} is being undone; try again")

    async def _replay(self, operation: Json, wanted: Json) -> Json | None:
        """The function of an earlier try of the same request; None when that try came to nothing."""
        recorded = check_replay(operation, wanted)
        if await self._ends.wait(operation) is None:
            return None
        function = await find(self._client, GPU_FUNCTIONS, recorded.target.name, recorded.target.namespace)
        # By its marks, not by its uid: a function that was made again from its stack has a new one.
        if function is None or not is_made_by(function, recorded):
            raise conflict(
                f"operation {recorded.operation_id!r} made the function {recorded.target.name!r}, which has been "
                "deleted; a new function needs a new operationID"
            )
        return function

    async def _carry_out(self, operation: Json, request: FunctionRequest) -> Json:
        """Steps 3 and 4. What ends without a refusal and without the mark is for the operations controller."""
        try:
            async with asyncio.timeout(ACCEPT_SECONDS):
                await check_catalogue(self._cluster, request.spec_name)
                function = await self._create(operation, request)
                pass_point("api.function-created")
        except TimeoutError:
            raise in_progress("Kubernetes is slow: the operation is finished in the background; ask again") from None
        except (ApiError, KubeError, NameTakenError) as error:
            refusal = as_refusal(error, "function")
            if refusal is None:
                raise
            await remove_operation(self._client, operation)
            raise refusal from error
        return await self._mark(operation, function)

    async def _create(self, operation: Json, request: FunctionRequest) -> Json:
        spec = operation["spec"]
        body = build_function(request, operation["metadata"]["namespace"], spec["operationID"], spec["requestHash"])
        return await create_or_adopt(self._client, GPU_FUNCTIONS, body)

    async def _mark(self, operation: Json, function: Json) -> Json:
        """Step 4. Whoever took the operation over meanwhile has the last word."""
        uid = function["metadata"]["uid"]
        try:
            await finish_operation(self._client, operation, OperationPhase.SUCCEEDED, self._now(), target_uid=uid)
        except (ConflictError, NotFoundError):
            ended = await self._ends.wait(operation)
            if ended is None or status_of(ended).target_uid != uid:
                await self._delete(function)
                raise in_progress("the operation was undone, because it took too long; try again") from None
        return function

    async def _delete(self, function: Json) -> None:
        try:
            await delete_that(self._client, GPU_FUNCTIONS, function["metadata"])
        except (ConflictError, NotFoundError):
            return


def build_creation(caller: Caller, operation_id: str, request: FunctionRequest) -> Json:
    spec = OperationSpec(
        operation_id=operation_id,
        kind=OperationKind.CREATE_FUNCTION,
        request_hash=request_hash(request),
        request=request.to_json(),
        target=OperationTarget(kind="GPUFunction", namespace=caller.namespace, name=request.name),
    )
    return build_operation(operation_name(caller.tenant, operation_id), caller.namespace, spec)
