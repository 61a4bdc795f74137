"""Carries out a pool's plan: units first, then the status that counts them."""

import asyncio
from typing import Any

from gpu_platform.adapters.kube import AlreadyExistsError, ConflictError, NotFoundError
from gpu_platform.adapters.kube.paths import GPU_UNITS, STOCK_POOLS
from gpu_platform.domain.stock_pools import StockPoolStatus
from reconciler.children import FIELD_MANAGER
from reconciler.stock.plan import CreateStock, Plan, RemoveStock
from reconciler.writer import Writer

Json = dict[str, Any]

WRITES_AT_ONCE = 10


async def apply_plan(plan: Plan, pool: Json, writer: Writer) -> bool:
    """Whether the pool's own status was written."""
    limit = asyncio.Semaphore(WRITES_AT_ONCE)

    async def write(action: CreateStock | RemoveStock) -> None:
        async with limit:
            await _apply_write(action, writer)

    async with asyncio.TaskGroup() as group:
        for action in plan.writes:
            group.create_task(write(action))
    return await _apply_status(pool, plan.status, writer)


async def _apply_write(action: CreateStock | RemoveStock, writer: Writer) -> None:
    match action:
        case CreateStock(body):
            try:
                await writer.create(
                    GPU_UNITS.collection(body["metadata"]["namespace"]), body, {"fieldManager": FIELD_MANAGER}
                )
            except AlreadyExistsError:
                return
        case RemoveStock(stock):
            metadata = stock["metadata"]
            # The resourceVersion makes a claim that came meanwhile win.
            guard = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
            try:
                await writer.delete(GPU_UNITS.item(metadata["name"], metadata["namespace"]), {"preconditions": guard})
            except (ConflictError, NotFoundError):
                return


async def _apply_status(pool: Json, status: StockPoolStatus, writer: Writer) -> bool:
    old = StockPoolStatus.model_validate(pool.get("status", {}))
    if old.model_copy(update={"last_sync_time": None}) == status.model_copy(update={"last_sync_time": None}):
        return False
    metadata = pool["metadata"]
    path = STOCK_POOLS.item(metadata["name"], metadata["namespace"], "status")
    guard = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    await writer.patch(path, {"metadata": guard, "status": status.model_dump(mode="json", by_alias=True)})
    return True
