"""P4, second half: a thousand units, and that a second look at all of them writes nothing."""

import asyncio
import time

from gpu_platform.domain.json_text import Json
from gpu_platform.kube.paths import GPU_UNITS
from tests.bench.figures import Figure, Goal
from tests.bench.reconciler_process import everything_is_passed, nothing_is_written, restart_reconciler
from tests.bench.sightings import watching
from tests.bench.workloads import TINY_SPEC, Bench, is_ready_unit
from tests.bench.write_counts import count_writes, describe
from tests.bench.writes import WRITES_PER_UNIT
from tests.support.units_and_stock import INSTANCES, create_unit, unit_body

UNITS = 1_000
CLIENTS = 20
READY_SECONDS = 300.0
"""About 90 s on two idle cores, most of it the API server's work; three times that when something else wants them."""


async def measure_second_pass(bench: Bench) -> list[Figure]:
    names = [f"many-{number}" for number in range(UNITS)]
    log = bench.audit_from_here()
    started_at = time.perf_counter()
    await make_ready(bench, names)
    bench.say(f"{UNITS} units are Ready after {time.perf_counter() - started_at:.0f} s")
    await nothing_is_written(bench)
    first = count_writes(log.writes(), names).of_units
    bench.say(f"per unit: {describe(first, UNITS)}")

    log = bench.audit_from_here()
    started_at = time.perf_counter()
    await restart_reconciler(bench)
    passes = await everything_is_passed(bench)
    bench.say(f"{passes} passes of a new process, done after {time.perf_counter() - started_at:.0f} s")
    second = count_writes(log.writes(), names)
    writes = second.of_units + second.of_pools
    bench.say(f"in all: {describe(writes, 1) or 'no write'}")
    return [
        Figure(
            "P4",
            "API writes per unit without stock to Ready",
            first.total() / UNITS,
            "",
            UNITS,
            goal=WRITES_PER_UNIT,
        ),
        Figure("P4", "API writes in a second pass over all units", writes.total(), "", passes, goal=Goal(0)),
    ]


async def make_ready(bench: Bench, names: list[str]) -> None:
    """Without ports: the embedded cluster has addresses for 254 Services only."""
    async with watching(bench.kube, GPU_UNITS.collection(INSTANCES)) as units:
        missing = set(names)

        def is_last(item: Json) -> bool:
            if is_ready_unit(item):
                missing.discard(item["metadata"]["name"])
            return not missing

        all_ready = units.expect(is_last)
        waiting = iter(names)

        async def create_in_turn() -> None:
            for name in waiting:
                await create_unit(bench.kube, unit_body(name, specName=TINY_SPEC))

        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(create_in_turn())
        await asyncio.wait_for(all_ready, READY_SECONDS)
