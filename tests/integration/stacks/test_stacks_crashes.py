"""Whatever dies while a stack is recorded or destroyed: the next worker finishes it, and nothing is done twice."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.names import SYSTEM_NAMESPACE
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_UNITS, LEASES
from gpu_platform.store.stack_leases import find_record
from stacks.runner.backend import StackFiles, shard_of
from tests.support.api import UNITS
from tests.support.clusters import RunningCluster
from tests.support.fault_report import FaultReport
from tests.support.stack_workers import (
    StackPlace,
    clear_index,
    expect_stack_deleted,
    running_pulumi,
    stack_worker,
    unit_stack,
    wait_idle,
    wait_recorded,
)
from tests.support.units_and_stock import INSTANCES, ensure_spec, get_unit, stock_pool
from tests.support.units_api import SPEC, delete_operations, rest_unit, spec_body
from tests.support.waiting import NotYet, eventually

WHILE_PULUMI_RUNS = "while Pulumi runs"
RECORDING = (
    "worker.lease-taken",
    "runner.init-done",
    WHILE_PULUMI_RUNS,
    "runner.up-done",
    "worker.pulumi-done",
    "worker.index-written",
)
REMOVING = (
    "worker.lease-taken",
    WHILE_PULUMI_RUNS,
    "runner.stack-removed",
    "worker.pulumi-done",
    "worker.index-written",
)
DELAYS = (0.0, 0.05, 0.15, 0.3, 0.5)
"""After which a Pulumi process is killed. It lives for about half a second."""

QUICK = {"RESYNC_SECONDS": "10", "PARALLEL": "2"}
HEALTHY = {**QUICK, "LEASE_SECONDS": "60"}
"""No process dies in this test, and none may look dead on a busy machine."""


@pytest.fixture(scope="module", autouse=True)
async def stock(kube: KubeClient) -> AsyncIterator[None]:
    await ensure_spec(kube, spec_body(SPEC))
    async with stock_pool(kube, "crashes", 4, specName=SPEC):
        yield


@pytest.fixture
async def place(kube: KubeClient, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StackPlace]:
    await clear_index(kube)
    yield StackPlace(tmp_path_factory.mktemp("stacks"))
    await clear_index(kube)


async def accept(api: httpx.AsyncClient, units: Sequence[str]) -> None:
    async def is_accepted(name: str) -> bool:
        return (await api.post(UNITS, json=rest_unit(name))).status_code in (200, 201)

    for name in units:
        # The pool may have to refill in between.
        await eventually(partial(is_accepted, name), every=0.3)


async def delete(api: httpx.AsyncClient, units: Sequence[str]) -> None:
    for name in units:
        assert (await api.delete(f"{UNITS}/{name}")).status_code == 204

    async def are_gone() -> bool:
        return all([(await api.get(f"{UNITS}/{name}")).status_code == 404 for name in units])

    await eventually(are_gone)


async def all_recorded(kube: KubeClient, units: Sequence[str]) -> None:
    for name in units:
        spec = (await get_unit(kube, name))["metadata"]["annotations"][names.ANNOTATION_ACCEPTED_SPEC]
        await wait_recorded(kube, unit_stack(name), spec)


async def all_forgotten(kube: KubeClient, units: Sequence[str]) -> None:
    for name in units:
        await expect_stack_deleted(kube, unit_stack(name))
        await delete_operations(kube, name)


@asynccontextmanager
async def at_most_one_pulumi(units: Sequence[str]) -> AsyncIterator[None]:
    """No stack has two live Pulumi processes while the block runs, as far as many looks can tell."""
    most: Counter[str] = Counter()

    async def look() -> None:
        while True:
            for name in units:
                stack = unit_stack(name).stack
                most[stack] = max(most[stack], len(await asyncio.to_thread(running_pulumi, stack)))
            await asyncio.sleep(0.05)

    task = asyncio.create_task(look())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert max(most.values(), default=0) <= 1, most


async def claims_of(kube: KubeClient, units: Sequence[str]) -> list[str]:
    """The stock from which these units come."""
    annotations = [(await get_unit(kube, name))["metadata"]["annotations"] for name in units]
    return [each[names.ANNOTATION_SOURCE_STOCK_UID] for each in annotations]


async def let_die(
    cluster: RunningCluster, place: StackPlace, units: Sequence[str], moment: str, faults: FaultReport
) -> None:
    """One more worker, which is killed at this moment of whatever it does first."""
    fault = None if moment == WHILE_PULUMI_RUNS else moment

    async def pulumi_runs() -> bool:
        return any([await asyncio.to_thread(running_pulumi, unit_stack(name).stack) for name in units])

    name = f"dies-{moment.replace(' ', '-')}"
    async with stack_worker(cluster, place, name=name, fault=fault, settings=QUICK) as worker:
        if fault is None:
            await eventually(pulumi_runs, every=0.005)
            worker.signal(signal.SIGKILL)
        assert await worker.ends() == -signal.SIGKILL, moment
    faults.hit(moment)


@pytest.mark.parametrize(
    ("recording", "removing"),
    [
        pytest.param((WHILE_PULUMI_RUNS,), (), id="one-moment"),
        pytest.param(RECORDING, REMOVING, id="every-moment", marks=pytest.mark.faults),
    ],
)
async def test_a_worker_that_dies_at_any_moment_leaves_nothing_that_the_next_one_cannot_finish(
    cluster: RunningCluster,
    api: httpx.AsyncClient,
    kube: KubeClient,
    place: StackPlace,
    faults: FaultReport,
    recording: tuple[str, ...],
    removing: tuple[str, ...],
) -> None:
    units = [f"dying-{number}" for number in range(len(recording))]
    await accept(api, units)
    uids = [(await get_unit(kube, name))["metadata"]["uid"] for name in units]
    async with at_most_one_pulumi(units):
        for moment in recording:
            await let_die(cluster, place, units, moment, faults)
        async with stack_worker(cluster, place, name="survivor", settings=QUICK):
            await all_recorded(kube, units)
        assert [(await get_unit(kube, name))["metadata"]["uid"] for name in units] == uids
        assert place.locks() == []
        await delete(api, units)
        for moment in removing:
            await let_die(cluster, place, units, moment, faults)
        async with stack_worker(cluster, place, name="last", settings=QUICK):
            await all_forgotten(kube, units)
    assert place.locks() == []
    for name in units:
        left = [path for path in place.files_of(unit_stack(name)) if path.startswith("backend")]
        assert left == []
    faults.held("no unit is made twice", "one Pulumi per stack", "no lock is left", "nothing of a stack is left")


@pytest.mark.faults
async def test_a_unit_that_was_made_again_survives_the_worker_that_could_not_say_so(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient, place: StackPlace, faults: FaultReport
) -> None:
    await accept(api, ["back"])
    async with stack_worker(cluster, place, name="first", settings=QUICK):
        await all_recorded(kube, ["back"])
    lost = (await get_unit(kube, "back"))["metadata"]["uid"]
    await kube.delete(GPU_UNITS.item("back", INSTANCES))
    async with stack_worker(cluster, place, name="dying", fault="worker.pulumi-done", settings=QUICK) as worker:
        assert await worker.ends() == -signal.SIGKILL
    faults.hit("worker.pulumi-done")
    made_again = (await get_unit(kube, "back"))["metadata"]["uid"]
    assert made_again != lost
    async with stack_worker(cluster, place, name="survivor", settings=QUICK):

        async def is_recorded() -> bool:
            record = await find_record(kube, unit_stack("back"))
            return record is not None and record.recorded is not None and record.uid == made_again

        await eventually(is_recorded)
        unit = await get_unit(kube, "back")
        assert unit["metadata"]["uid"] == made_again
        assert "deletionTimestamp" not in unit["metadata"]
        await delete(api, ["back"])
        await all_forgotten(kube, ["back"])
    faults.held("the unit is made again once")


async def kill_pulumi(stack: str, delay: float) -> bool:
    """Kill the next process that works on this stack, this long after it began. False: it had ended by then."""

    async def is_there() -> list[int]:
        return await asyncio.to_thread(running_pulumi, stack)

    [pid, *_] = await eventually(is_there, every=0.005)
    await asyncio.sleep(delay)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.faults
async def test_a_pulumi_process_that_is_killed_at_any_moment_is_started_again(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient, place: StackPlace, faults: FaultReport
) -> None:
    units = [f"killed-{number}" for number in range(len(DELAYS))]
    async with stack_worker(cluster, place, settings=QUICK) as worker, at_most_one_pulumi(units):
        await worker.says("worker.started")
        kills = []
        for name, delay in zip(units, DELAYS, strict=True):
            killing = asyncio.create_task(kill_pulumi(unit_stack(name).stack, delay))
            await accept(api, [name])
            kills.append(await killing)
        assert any(kills)
        faults.hit("Pulumi: SIGKILL", sum(kills))
        await all_recorded(kube, units)
        assert len(set(await claims_of(kube, units))) == len(units)
        assert place.locks() == []
        kills = []
        for name, delay in zip(units, DELAYS, strict=True):
            killing = asyncio.create_task(kill_pulumi(unit_stack(name).stack, delay))
            await delete(api, [name])
            kills.append(await killing)
        assert any(kills)
        faults.hit("Pulumi: SIGKILL", sum(kills))
        await all_forgotten(kube, units)
    assert place.locks() == []
    faults.held("no stock is claimed twice", "one Pulumi per stack", "no lock is left")


async def test_an_unfinished_lock_file_does_not_keep_a_stack_from_being_recorded_or_removed(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient, place: StackPlace, faults: FaultReport
) -> None:
    """A kill or a full disk leaves one, and Pulumi reads it as a lock."""
    address = unit_stack("unfinished")
    locks = StackFiles(place.backend / shard_of(address.stack), address).locks

    def leave() -> None:
        locks.mkdir(parents=True, exist_ok=True)
        (locks / "6f1e.json.18a0c5.tmp").touch()
        faults.hit("an empty temporary file among the locks")

    leave()
    await accept(api, ["unfinished"])
    async with stack_worker(cluster, place, settings=HEALTHY) as worker:
        await all_recorded(kube, ["unfinished"])
        assert place.locks() == []
        await wait_idle(worker)
        leave()
        await delete(api, ["unfinished"])
        await all_forgotten(kube, ["unfinished"])
    assert place.locks() == []
    faults.held("the stack is recorded, and removed")


@pytest.mark.parametrize("count", [2, pytest.param(10, marks=pytest.mark.faults)])
async def test_of_two_workers_each_stack_is_recorded_by_one(
    cluster: RunningCluster,
    api: httpx.AsyncClient,
    kube: KubeClient,
    place: StackPlace,
    faults: FaultReport,
    count: int,
) -> None:
    units = [f"shared-{number}" for number in range(count)]
    async with (
        stack_worker(cluster, place, name="one", settings=HEALTHY) as one,
        stack_worker(cluster, place, name="two", settings=HEALTHY) as two,
        at_most_one_pulumi(units),
    ):
        for worker in (one, two):
            await worker.says("worker.started")
        await accept(api, units)
        await all_recorded(kube, units)
        ours = {unit_stack(name).lease: 1 for name in units}

        async def all_told() -> Counter[str] | NotYet:
            """Each worker writes its line after the record."""
            told = [entry for worker in (one, two) for entry in worker.entries() if entry["message"] == "stack.done"]
            counted = Counter(each["stack"] for each in told if each["action"] == "RECORD" and each["stack"] in ours)
            return counted if counted.keys() == ours.keys() else NotYet(counted)

        assert await eventually(all_told) == ours
        faults.hit("stacks between two workers", count)
        faults.held("each stack is recorded once")
        await delete(api, units)
        await all_forgotten(kube, units)


@pytest.mark.faults
async def test_a_worker_that_slept_through_its_lease_changes_nothing_when_it_wakes(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient, place: StackPlace, faults: FaultReport
) -> None:
    address = unit_stack("slept")

    async def pulumi_runs() -> list[int]:
        return await asyncio.to_thread(running_pulumi, address.stack)

    async with stack_worker(cluster, place, name="sleeper", settings=QUICK) as sleeper:
        await sleeper.says("worker.started")
        await accept(api, ["slept"])
        await eventually(pulumi_runs, every=0.005)
        sleeper.signal(signal.SIGSTOP)
        async with stack_worker(cluster, place, name="other", settings=QUICK):
            await all_recorded(kube, ["slept"])
            before = await kube.get(LEASES.item(address.lease, SYSTEM_NAMESPACE))
            sleeper.signal(signal.SIGCONT)
            await sleeper.says("stack.failed")
            faults.hit("worker: SIGSTOP past its lease")
            await wait_idle(sleeper)
            after = await kube.get(LEASES.item(address.lease, SYSTEM_NAMESPACE))
            assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
            record = await find_record(kube, address)
            assert record is not None
            assert record.error is None
            units = await kube.get(GPU_UNITS.collection(INSTANCES))
            assert [each["metadata"]["name"] for each in units["items"]].count("slept") == 1
            await delete(api, ["slept"])
            await all_forgotten(kube, ["slept"])
    faults.held("who lost the lease writes nothing")
