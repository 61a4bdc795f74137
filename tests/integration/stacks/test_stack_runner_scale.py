"""Many stacks in one process: at once, and one after the other."""

import gc
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.fault_report import FaultReport
from tests.support.stack_runners import RunnerBench, build_program, open_bench, unit

WARM_UP = 4
"""Runs until imports, thread pools and allocator have settled."""

GROWTH_MEGABYTES = 16


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[RunnerBench]:
    with open_bench(tmp_path) as bench:
        yield bench


def read_resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("at_once", [3, pytest.param(8, marks=pytest.mark.faults)])
def test_programs_that_run_at_once_do_not_see_each_other(bench: RunnerBench, faults: FaultReport, at_once: int) -> None:
    runner = bench.build_runner()
    names = [f"unit-{number}" for number in range(at_once)]

    def record(name: str) -> str:
        return str(runner.record(unit(name), build_program(name, colour=f"colour of {name}")).outputs["where"])

    with ThreadPoolExecutor(at_once) as pool:
        outputs = list(pool.map(record, names))

    assert outputs == [f"shelf of {name}" for name in names]
    assert {name: bench.shelves.things[name]["colour"] for name in names} == {
        name: f"colour of {name}" for name in names
    }
    assert sorted(call.split()[0] for call in bench.calls()) == sorted(["stack"] * at_once + ["up"] * at_once)
    faults.hit("programs at once", at_once)
    faults.held("no program sees another one")


@pytest.mark.parametrize("runs", [WARM_UP + 3, pytest.param(WARM_UP + 25, marks=pytest.mark.faults)])
def test_a_long_life_costs_no_threads_no_descriptors_and_little_memory(
    bench: RunnerBench, faults: FaultReport, runs: int
) -> None:
    runner = bench.build_runner()
    settled: tuple[int, int, float] | None = None
    for number in range(runs):
        if number == WARM_UP:
            gc.collect()
            settled = threading.active_count(), count_descriptors(), read_resident_megabytes()
        runner.record(unit("one"), build_program("one", number=number))
    gc.collect()

    assert settled is not None
    threads, descriptors, megabytes = settled
    assert threading.active_count() <= threads + 8, [thread.name for thread in threading.enumerate()]
    assert count_descriptors() <= descriptors + 8
    assert read_resident_megabytes() - megabytes < GROWTH_MEGABYTES
    faults.hit("runs in one process", runs)
    faults.held("no thread, descriptor or memory leaks")
