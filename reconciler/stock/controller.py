"""The stock controller: observe, plan, apply; and which changes concern which pool."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from gpu_platform.control.results import Done, RequeueAfter, Result
from gpu_platform.controller.loop import Key, Trigger
from gpu_platform.domain import names
from gpu_platform.domain.metadata import labels_of
from reconciler.expectations import PATIENCE, OwnWrites
from reconciler.informers import World, key_of
from reconciler.stock.apply import apply_plan
from reconciler.stock.observe import observe_pool
from reconciler.stock.plan import plan_pool
from reconciler.writer import Writer

Json = dict[str, Any]

NEXT_BATCH = timedelta(milliseconds=50)
"""Long enough for the watch to bring the batch back, so that it is not planned again."""


class StockController:
    name = "stock"

    def __init__(self, world: World, writer: Writer, now: Callable[[], datetime]) -> None:
        self._world = world
        self._writer = writer
        self._now = now
        self._own_writes = OwnWrites(now)

    async def reconcile(self, namespace: str, name: str) -> Result:
        observed = observe_pool(self._world, namespace, name)
        if observed is None:
            return Done()
        place = ("StockPool", namespace, name)
        if self._own_writes.are_outdated([(place, observed.pool)]):
            return RequeueAfter(PATIENCE, "the watch has not shown the last write yet")
        plan = plan_pool(observed, self._now())
        if await apply_plan(plan, observed.pool, self._writer):
            self._own_writes.remember(place, observed.pool)
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
