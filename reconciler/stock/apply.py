"""Carries out a pool's plan: units first, then the status that counts them."""

import asyncio
from typing import Any

from gpu_platform.domain.stock_pools import StockPoolStatus
from gpu_platform.kube import AlreadyExistsError
from gpu_platform.kube.paths import GPU_UNITS, STOCK_POOLS
from reconciler.child_diff import MANAGER
from reconciler.guarded_writes import delete_seen, patch_status
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

    try:
        async with asyncio.TaskGroup() as group:
            for action in plan.writes:
                group.create_task(write(action))
    except BaseExceptionGroup as failures:
        # The loop knows what each error means, but not what a group of them does.
        raise failures.exceptions[0] from failures
    old = StockPoolStatus.model_validate(pool.get("status", {}))
    return await patch_status(writer, STOCK_POOLS, pool, old, plan.status)


async def _apply_write(action: CreateStock | RemoveStock, writer: Writer) -> None:
    match action:
        case CreateStock(body):
            try:
                await writer.create(GPU_UNITS.collection(body["metadata"]["namespace"]), body, MANAGER)
            except AlreadyExistsError:
                return
        case RemoveStock(stock):
            await delete_seen(writer, GPU_UNITS, stock, unchanged=True)
