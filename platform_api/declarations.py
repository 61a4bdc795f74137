"""Accepting an object that takes nothing of anybody: ledger, object, mark; each step guarded, each safe to die after.

| step | what                                       | who repairs it when this process dies right after          |
| ---- | ------------------------------------------ | ---------------------------------------------------------- |
| 1    | check and hash the request                 | nothing was written                                        |
| 2    | record the Operation, if there is none     | the operations controller removes it: nothing was accepted |
| 3    | create the object                          | the operations controller marks it                         |
| 4    | mark the Operation succeeded               | nothing is left to do                                      |
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpu_platform.adapters.creations import NameTakenError, create_or_adopt
from gpu_platform.adapters.fault_points import pass_point
from gpu_platform.adapters.kube import ConflictError, KubeError, NotFoundError, ResourcePath
from gpu_platform.adapters.kube.requests import delete_that, find
from gpu_platform.adapters.ledger import finish_operation, remove_operation, status_of
from gpu_platform.domain.operations import ACCEPT_SECONDS, OperationPhase, is_made_by
from platform_api.bounded_client import BoundedClient
from platform_api.http.errors import ApiError, conflict, in_progress
from platform_api.tenant_operations import BEGINNINGS, OperationEnds, as_refusal, check_replay, open_for_tenant

Json = dict[str, Any]
Check = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Declared:
    item: Json
    is_new: bool


class Declarations:
    """Of one kind; `what` it is, in words."""

    def __init__(self, client: BoundedClient, path: ResourcePath, what: str, now: Callable[[], datetime]) -> None:
        self._client = client
        self._path = path
        self._what = what
        self._now = now
        self.ends = OperationEnds(client)

    async def accept(self, wanted: Json, body: Json, check: Check) -> Declared:
        """`wanted` is the Operation, `body` the object that it makes, once `check` has found what both need."""
        for _ in range(BEGINNINGS):
            opened = await open_for_tenant(self._client, wanted)
            if opened.is_new:
                pass_point(f"api.{self._what}-recorded")
                return Declared(await self._carry_out(opened.operation, body, check), is_new=True)
            if (item := await self._replay(opened.operation, wanted)) is not None:
                return Declared(item, is_new=False)
        raise in_progress(f"operation {wanted['spec']['operationID']!r} is being undone; try again")

    async def _replay(self, operation: Json, wanted: Json) -> Json | None:
        """The object of an earlier try of the same request; None when that try came to nothing."""
        recorded = check_replay(operation, wanted)
        if await self.ends.wait(operation) is None:
            return None
        item = await find(self._client, self._path, recorded.target.name, recorded.target.namespace)
        # By its marks, not by its uid: what was made again from its stack has a new one.
        if item is None or not is_made_by(item, recorded):
            raise conflict(
                f"operation {recorded.operation_id!r} made the {self._what} {recorded.target.name!r}, which has been "
                f"deleted; a new {self._what} needs a new operationID"
            )
        return item

    async def _carry_out(self, operation: Json, body: Json, check: Check) -> Json:
        """Steps 3 and 4. What ends without a refusal and without the mark is for the operations controller."""
        try:
            async with asyncio.timeout(ACCEPT_SECONDS):
                await check()
                item = await create_or_adopt(self._client, self._path, body)
                pass_point(f"api.{self._what}-created")
        except TimeoutError:
            raise in_progress("Kubernetes is slow: the operation is finished in the background; ask again") from None
        except (ApiError, KubeError, NameTakenError) as error:
            refusal = as_refusal(error, self._what)
            if refusal is None:
                raise
            await remove_operation(self._client, operation)
            raise refusal from error
        return await self._mark(operation, item)

    async def _mark(self, operation: Json, item: Json) -> Json:
        """Step 4. Whoever took the operation over meanwhile has the last word."""
        uid = item["metadata"]["uid"]
        try:
            await finish_operation(self._client, operation, OperationPhase.SUCCEEDED, self._now(), target_uid=uid)
        except (ConflictError, NotFoundError):
            ended = await self.ends.wait(operation)
            if ended is None or status_of(ended).target_uid != uid:
                await self._delete(item)
                raise in_progress("the operation was undone, because it took too long; try again") from None
        return item

    async def _delete(self, item: Json) -> None:
        try:
            await delete_that(self._client, self._path, item["metadata"])
        except (ConflictError, NotFoundError):
            return
