"""P8: how fast lost units are made again from their stacks, against what the two Pulumi processes of a stack cost."""

import asyncio
import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpu_platform.domain.names import ANNOTATION_ACCEPTED_SPEC
from gpu_platform.domain.units import Template, UnitRequest
from gpu_platform.kube.paths import GPU_UNITS, OPERATIONS
from stacks.runner import RunnerSettings, StackRunner
from tests.bench.figures import Figure, Goal
from tests.bench.rest import open_rest
from tests.bench.workloads import TINY_SPEC, Bench
from tests.support.clusters import RunningCluster
from tests.support.restore import restore
from tests.support.shelf_provider import Shelves, serve
from tests.support.stack_runners import PASSPHRASE, build_program, find_pulumi, unit
from tests.support.stack_workers import StackPlace, clear_index, stack_worker, unit_stack, wait_recorded
from tests.support.units_and_stock import INSTANCES, delete_unit, get_unit, stock_pool
from tests.support.units_api import delete_operations

UNITS = 40
POOL = "p8"
SPARE = 8
PARALLEL = 2
"""As many stacks at once as the stack worker's settings say by default, on both sides."""

RECORD_SECONDS = 300.0


async def measure_restore(bench: Bench) -> list[Figure]:
    cluster = RunningCluster(bench.directory, bench.record)
    with tempfile.TemporaryDirectory(prefix="gpu-bench-restore-") as name:
        place = StackPlace(Path(name))
        async with stock_pool(bench.kube, POOL, UNITS + SPARE, specName=TINY_SPEC, replenish="Never"):
            names = [f"p8-{number}" for number in range(UNITS)]
            await _rent_and_record(bench, cluster, place, names)
            await _lose(bench, names)
            # One half before and one after: the machine may become busier or calmer.
            bare = await asyncio.to_thread(_time_bare_stacks, Path(name), "before", UNITS // 2)
            began_at = time.perf_counter()
            told = await restore(cluster, place, "--json")
            seconds = time.perf_counter() - began_at
            bare += await asyncio.to_thread(_time_bare_stacks, Path(name), "after", UNITS // 2)
            counts = json.loads(told.output)["counts"]
            if counts != {"restored": UNITS}:
                raise RuntimeError(f"not everything was restored: {told.output}")
            for each in names:
                await delete_unit(bench.kube, each)
            await clear_index(bench.kube)
    bench.say(f"{UNITS} units: {seconds:.1f} s, {UNITS} bare stacks: {bare:.1f} s")
    what = "restore of lost units, per second ÷ bare stacks (init, up), as many at once"
    return [Figure("P8", what, UNITS / seconds, "/s", UNITS, UNITS / bare, Goal(0.8, of_ratio=True, at_least=True))]


async def _rent_and_record(bench: Bench, cluster: RunningCluster, place: StackPlace, names: list[str]) -> None:
    async with open_rest(bench.record) as rest:
        for name in names:
            request = UnitRequest(name=name, spec_name=TINY_SPEC, image="example/train", template=Template())
            await rest.time_post(request)
    async with stack_worker(cluster, place):
        for name in names:
            spec = (await get_unit(bench.kube, name))["metadata"]["annotations"][ANNOTATION_ACCEPTED_SPEC]
            await wait_recorded(bench.kube, unit_stack(name), spec, within=RECORD_SECONDS)


async def _lose(bench: Bench, names: list[str]) -> None:
    """Units, ledger and index: all that an empty cluster would not have. Its namespaces, catalogue and stock stay."""
    for name in names:
        await delete_unit(bench.kube, name)
        await delete_operations(bench.kube, name)
    await clear_index(bench.kube)
    left = [
        item["metadata"]["name"]
        for path in (GPU_UNITS, OPERATIONS)
        for item in (await bench.kube.get(path.collection(INSTANCES)))["items"]
        if item["metadata"]["name"].startswith("p8-")
    ]
    if left:
        raise RuntimeError(f"these should be lost by now: {left}")


def _time_bare_stacks(directory: Path, prefix: str, count: int) -> float:
    """The same runner and CLI, with a provider in memory: no cluster, no claims, no Leases, no ledger."""
    with serve(Shelves()) as port, ThreadPoolExecutor(PARALLEL) as executor:
        settings = RunnerSettings(f"file://{directory / 'bare'}", directory / "work", PASSPHRASE, find_pulumi())
        runner = StackRunner(settings, port)
        names = [f"{prefix}-{number}" for number in range(count)]
        began_at = time.perf_counter()
        list(executor.map(lambda name: runner.record(unit(name), build_program(name, number=0)), names))
        return time.perf_counter() - began_at
