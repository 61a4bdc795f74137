"""P4, first half: what the reconciler writes to bring a unit from stock to Ready."""

import asyncio

from gpu_platform.kube.paths import GPU_UNITS
from tests.bench.figures import Figure, Goal
from tests.bench.reconciler_process import nothing_is_written
from tests.bench.sightings import watching
from tests.bench.workloads import Bench, time_unit_from_stock
from tests.bench.write_counts import count_writes, describe
from tests.support.units_and_stock import INSTANCES, stock_pool, wait_pool_available

POOL = "p4"
UNITS = 50
CLIENTS = 10
"""At once: hand-offs side by side meet more conflicts than one after the other."""

WRITES_PER_UNIT = Goal(8)


async def measure_writes(bench: Bench) -> list[Figure]:
    kube = bench.kube
    names = [f"p4-{number}" for number in range(UNITS)]
    async with stock_pool(kube, POOL, UNITS), watching(kube, GPU_UNITS.collection(INSTANCES)) as units:
        await nothing_is_written(bench)
        log = bench.audit_from_here()
        waiting = iter(names)

        async def take_turns() -> None:
            for name in waiting:
                await time_unit_from_stock(kube, units, POOL, name)

        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(take_turns())
        await wait_pool_available(kube, POOL, UNITS)
        await nothing_is_written(bench)
        counts = count_writes(log.writes(agent=""), names)
    bench.say(f"per unit: {describe(counts.of_units, UNITS)}")
    bench.say(f"per stock unit made anew: {describe(counts.of_pools, UNITS)}")
    per_unit, per_stock = counts.of_units.total() / UNITS, counts.of_pools.total() / UNITS
    return [
        Figure("P4", "API writes per unit from stock to Ready", per_unit, "", UNITS, goal=WRITES_PER_UNIT),
        Figure("P4", "  the pool's, per stock unit made anew", per_stock, "", UNITS),
    ]
