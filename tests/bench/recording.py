"""P3: how long after its answer a unit is recorded, alone and in company, by one worker with its default settings."""

import asyncio
import tempfile
import time
from pathlib import Path

from gpu_platform.domain.units import Template, UnitRequest
from gpu_platform.store.stack_leases import find_record
from tests.bench.figures import Figure, p50, p99
from tests.bench.rest import Rest, open_rest
from tests.bench.workloads import TINY_SPEC, Bench
from tests.support.clusters import RunningCluster
from tests.support.stack_workers import StackPlace, stack_worker, unit_stack
from tests.support.units_and_stock import stock_pool
from tests.support.waiting import eventually

CLIENTS = (1, 8, 32)
ALONE = 8
"""Requests of the single client, each sent when the last one is recorded."""

RECORD_SECONDS = 120.0
POOL = "p3"


async def measure_waiting(bench: Bench) -> list[Figure]:
    total = ALONE + sum(CLIENTS[1:])
    with tempfile.TemporaryDirectory(prefix="gpu-bench-stacks-") as name:
        place = StackPlace(Path(name))
        async with (
            stock_pool(bench.kube, POOL, total + 8, specName=TINY_SPEC, replenish="Never"),
            stack_worker(RunningCluster(bench.directory, bench.record), place) as worker,
            open_rest(bench.record) as rest,
        ):
            await worker.says("worker.started")
            figures = [_describe(1, [await _time(bench, rest, f"p3-1-{number}") for number in range(ALONE)])]
            for clients in CLIENTS[1:]:
                units = [f"p3-{clients}-{number}" for number in range(clients)]
                figures.append(_describe(clients, await asyncio.gather(*(_time(bench, rest, each) for each in units))))
            return figures


async def _time(bench: Bench, rest: Rest, name: str) -> float:
    request = UnitRequest(name=name, spec_name=TINY_SPEC, image="example/train", template=Template())
    await rest.time_post(request)
    answered_at = time.perf_counter()

    async def is_recorded() -> bool:
        record = await find_record(bench.kube, unit_stack(name))
        return record is not None and record.recorded is not None

    await eventually(is_recorded, within=RECORD_SECONDS, every=0.05)
    return time.perf_counter() - answered_at


def _describe(clients: int, seconds: list[float]) -> Figure:
    what = f"  from 201 to recorded, {clients} client{'s' if clients > 1 else ''}, p50 (p99 {p99(seconds):.1f} s)"
    return Figure("P3", what, p50(seconds), "s", len(seconds))
