"""The stock controller: which pools it looks at, what it sees of one, and how it carries out a pool's plan: units
first, then the status that counts them.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta

from gpu_platform.controller.loop import Done, Key, RequeueAfter, Result, Trigger
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import key_of, labels_of
from gpu_platform.domain.stacks import as_accepted
from gpu_platform.domain.stock import StockPoolSpec, StockPoolStatus
from gpu_platform.kube import AlreadyExistsError
from gpu_platform.kube.requests import ObjectClient
from reconciler.expectations import PATIENCE, OwnWrites, place_of
from reconciler.guarded_writes import ObjectWrite, apply_write, write_status
from reconciler.informers import World
from reconciler.stock.plan import Observed, Plan, plan_pool

POOL = "StockPool"
WRITES_AT_ONCE = 10

NEXT_BATCH = timedelta(milliseconds=50)
"""Long enough for the watch to bring the batch back, so that it is not planned again."""


def observe_pool(world: World, namespace: str, name: str) -> Observed | None:
    """None when there is no such pool: its stock goes with it, by owner reference."""
    pool = world.pools.get(namespace, name)
    if pool is None:
        return None
    spec = StockPoolSpec.model_validate(as_accepted(pool)["spec"])
    return Observed(
        pool=pool,
        spec=spec,
        catalogue=world.find_spec(spec.spec_name),
        stock=world.stock_of(name),
        instances=tuple(map(as_accepted, world.instances_of(name))),
    )


async def apply_plan(plan: Plan, pool: Json, writer: ObjectClient, own_writes: OwnWrites) -> None:
    limit = asyncio.Semaphore(WRITES_AT_ONCE)

    async def write(action: ObjectWrite) -> None:
        # One that is there by now was created by an earlier pass.
        async with limit:
            with suppress(AlreadyExistsError):
                await apply_write(action, writer)

    try:
        async with asyncio.TaskGroup() as group:
            for action in plan.writes:
                group.create_task(write(action))
    except BaseExceptionGroup as failures:
        # The loop knows what each error means, but not what a group of them does.
        raise failures.exceptions[0] from failures
    old = StockPoolStatus.of(pool)
    await write_status(writer, own_writes, POOL, pool, old, plan.status)


class StockController:
    name = "stock"

    def __init__(self, world: World, writer: ObjectClient, now: Callable[[], datetime]) -> None:
        self._world = world
        self._writer = writer
        self._now = now
        self._own_writes = OwnWrites(now)

    async def reconcile(self, namespace: str, name: str) -> Result:
        observed = observe_pool(self._world, namespace, name)
        if observed is None:
            return Done()
        if self._own_writes.are_outdated([(place_of(POOL, observed.pool), observed.pool)]):
            return RequeueAfter(PATIENCE, "the watch has not shown the last write yet")
        plan = plan_pool(observed, self._now())
        await apply_plan(plan, observed.pool, self._writer, self._own_writes)
        if plan.wait is not None:
            return RequeueAfter(plan.wait, "a hand-off is under way")
        return Done() if plan.is_complete else RequeueAfter(NEXT_BATCH, "the batch was full")

    def triggers(self) -> tuple[Trigger, ...]:
        world = self._world
        return (
            Trigger(world.pools, lambda pool: [key_of(pool)]),
            Trigger(world.units, _pool_keys),
            Trigger(world.specs, self._pools_of_spec),
        )

    def _pools_of_spec(self, spec: Json) -> Iterable[Key]:
        return [key_of(pool) for pool in self._world.pools.by_index("spec", spec["metadata"]["name"])]


def _pool_keys(unit: Json) -> Iterable[Key]:
    if pool := labels_of(unit).get(names.LABEL_POOL):
        yield names.STOCK_NAMESPACE, pool
