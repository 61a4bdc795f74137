"""Accepting an object that takes nothing of anybody: ledger, object, mark; each step guarded, each safe to die after.

| step | what                                       | who repairs it when this process dies right after          |
| ---- | ------------------------------------------ | ---------------------------------------------------------- |
| 1    | check and hash the request; the tenant's limits | nothing was written                                   |
| 2    | record the Operation, if there is none     | the operations controller removes it: nothing was accepted |
| 3    | create the object                          | the operations controller marks it                         |
| 4    | mark the Operation succeeded               | nothing is left to do                                      |
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpu_platform.adapters.fault_points import pass_point
from gpu_platform.domain.operations import ACCEPT_SECONDS
from gpu_platform.kube import KubeError, ResourcePath
from gpu_platform.store.creations import NameTakenError, create_or_adopt
from gpu_platform.store.ledger import remove_operation
from platform_api.auth.keys import Caller
from platform_api.bounded_client import BoundedClient
from platform_api.http.errors import ApiError
from platform_api.objects.idempotent_create import (
    BEGINNINGS,
    OperationEnds,
    as_refusal,
    being_undone,
    finished_in_background,
    open_for_tenant,
    undone_meanwhile,
)
from platform_api.objects.limits import ObjectLimits

Json = dict[str, Any]
Check = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Declared:
    item: Json
    is_new: bool


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

    async def accept(self, caller: Caller, wanted: Json, body: Json, check: Check) -> Declared:
        """`wanted` is the Operation, `body` the object that it makes, once `check` has found what both need."""
        for _ in range(BEGINNINGS):
            opened = await self._limits.find_replay(caller, wanted) or await open_for_tenant(self._client, wanted)
            if opened.is_new:
                pass_point(f"api.{self._what}-recorded")
                return Declared(await self._carry_out(opened.operation, body, check), is_new=True)
            item = await self._ends.find_made(opened.operation, wanted, self._path, self._what)
            if item is not None:
                return Declared(item, is_new=False)
        raise being_undone(wanted["spec"]["operationID"])

    async def _carry_out(self, operation: Json, body: Json, check: Check) -> Json:
        """Steps 3 and 4. What ends without a refusal and without the mark is for the operations controller."""
        try:
            async with asyncio.timeout(ACCEPT_SECONDS):
                await check()
                item = await create_or_adopt(self._client, self._path, body)
                pass_point(f"api.{self._what}-created")
        except TimeoutError:
            raise finished_in_background() from None
        except (ApiError, KubeError, NameTakenError) as error:
            refusal = as_refusal(error, self._what)
            if refusal is None:
                raise
            await remove_operation(self._client, operation)
            raise refusal from error
        if not await self._ends.mark_made(operation, self._path, item, self._now()):
            raise undone_meanwhile()
        return item
