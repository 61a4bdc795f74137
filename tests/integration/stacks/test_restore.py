"""A cluster is lost. A second, empty one becomes the same platform from the Pulumi state alone, whoever dies meanwhile.

The tests stand in the order of the story: each finds what the one before it left.
"""

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from functools import partial

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.stacks import LABEL_KIND
from gpu_platform.domain.stock import claim_holder_of
from gpu_platform.kube import KubeClient, open_client
from gpu_platform.kube.paths import GPU_SPECS, GPU_UNITS, LEASES
from gpu_platform.store.stack_leases import PATHS, find_record, holder_of
from tests.architecture.repository import ROOT
from tests.support.api import UNITS, api_process, open_api, wait_ready
from tests.support.bootstrap import PLATFORM, SECONDS
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.daemons import running_daemon
from tests.support.fault_report import FaultReport
from tests.support.functions import FUNCTIONS
from tests.support.operator_api import POOLS
from tests.support.restore import (
    FUNCTION,
    REFILLING,
    SEEDED,
    Lost,
    Story,
    build_wish,
    dead_pid,
    ensure_specs,
    lose,
    plant_lock,
    read_accepted,
    restore,
    restoring,
    working_on,
)
from tests.support.stack_workers import PASSPHRASE, stack_worker, unit_stack
from tests.support.units_and_stock import INSTANCES, find, get_unit, stock_of, wait_pool_available
from tests.support.waiting import NotYet, eventually

ONE_MOMENT = ("restore.pulumi-done",)
ALL_MOMENTS = ("restore.lease-taken", *ONE_MOMENT, "restore.ledger-written", "restore.index-written")
STORIES = [
    pytest.param(Story(4, ONE_MOMENT), id="small"),
    pytest.param(Story(15, ALL_MOMENTS), id="large", marks=pytest.mark.faults),
]


@pytest.fixture(scope="module", params=STORIES)
def story(request: pytest.FixtureRequest) -> Story:
    chosen: Story = request.param
    return chosen


@pytest.fixture(scope="module")
async def lost(
    cluster: RunningCluster,
    api: httpx.AsyncClient,
    kube: KubeClient,
    story: Story,
    tmp_path_factory: pytest.TempPathFactory,
) -> Lost:
    """The session's cluster stands for it."""
    return await lose(cluster, api, kube, tmp_path_factory.mktemp("restored"), story)


@pytest.fixture(autouse=True)
def load(faults: FaultReport, story: Story) -> None:
    faults.hit("stacks to restore", len(story.stacks))


@pytest.fixture(scope="module")
def empty(lost: Lost) -> Iterator[RunningCluster]:  # noqa: ARG001 - it starts once the first one has done its part
    """Kubernetes and nothing else."""
    with running_cluster(nodes=2, gpus=2, platform=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
async def fresh(empty: RunningCluster) -> AsyncIterator[KubeClient]:
    async with await open_client(empty.kubeconfig) as client:
        yield client


@pytest.fixture(scope="module")
async def daemons(empty: RunningCluster) -> AsyncIterator[AsyncExitStack]:  # noqa: ARG001 - they end before it
    """Of the second cluster; started by the story, ended with it."""
    async with AsyncExitStack() as stack:
        yield stack


async def test_without_the_platform_nothing_is_restored_and_the_way_out_is_named(
    lost: Lost, empty: RunningCluster
) -> None:
    told = await restore(empty, lost.place)
    assert told.code == 1
    assert "gpu-platform bootstrap up --refresh" in told.errors


async def test_the_bootstrap_with_refresh_makes_the_ground_although_its_state_says_that_all_is_there(
    lost: Lost, empty: RunningCluster, fresh: KubeClient, daemons: AsyncExitStack
) -> None:
    environment = {
        **os.environ,
        **empty.environment(os.environ["PATH"]),
        "PULUMI_BACKEND_URL": f"file://{lost.infra_state}?metadata=skip",
    }
    outcome = await asyncio.to_thread(
        subprocess.run,
        [*PLATFORM, "bootstrap", "up", "--refresh"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert await find(fresh, GPU_SPECS.item("g1.1")) is not None
    settings = {
        "GPU_PLATFORM_RECONCILER_KUBECONFIG": str(empty.kubeconfig),
        "GPU_PLATFORM_RECONCILER_METRICS_ADDRESS": "127.0.0.1:0",
        "GPU_PLATFORM_RECONCILER_PROBE_ADDRESS": "127.0.0.1:0",
    }
    await daemons.enter_async_context(running_daemon("reconciler", lost.place.root / "reconciler.log", settings))


async def test_what_cannot_be_made_says_why_and_a_dry_run_writes_nothing(
    lost: Lost, empty: RunningCluster, fresh: KubeClient
) -> None:
    told = await restore(empty, lost.place, passphrase=f"not {PASSPHRASE}")
    assert told.code == 1
    assert "passphrase" in told.errors
    told = await restore(empty, lost.place, "--only", "gpu-unit/default.nobody")
    assert told.code == 2
    told = await restore(empty, lost.place, "--json")
    assert told.code == 1
    assert set(told.results().values()) == {"failed"}
    assert "there is no GPUSpec again-a.0" in told.reason_of(unit_stack("again-a-00").full_name)
    await ensure_specs(fresh)

    told = await restore(empty, lost.place, "--dry-run", "--json")
    assert told.code == 0
    assert told.plan() == {address.full_name: "make" for address in lost.story.stacks}
    assert await index_of(fresh) == []
    for path in PATHS.values():
        assert (await fresh.get(path.collection()))["items"] == []


async def test_a_claim_of_a_restore_that_died_is_the_one_that_the_next_one_uses(
    lost: Lost, empty: RunningCluster, fresh: KubeClient, faults: FaultReport
) -> None:
    told = await restore(empty, lost.place, "--only", "stock-pool/*", "--json")
    assert told.code == 0, told.errors
    await wait_pool_available(fresh, SEEDED, lost.story.per_pool + 1)
    address = unit_stack("again-b-00")
    told = await restore(empty, lost.place, "--only", address.full_name, fault="provider.stock-claimed")
    assert told.code == -signal.SIGKILL
    faults.hit("provider.stock-claimed")
    assert await find(fresh, GPU_UNITS.item(address.name, INSTANCES)) is None
    [claimed] = [stock for stock in await stock_of(fresh, SEEDED) if claim_holder_of(stock)]

    told = await restore(empty, lost.place, "--only", address.full_name, "--json")
    assert told.code == 0, told.output
    annotations = annotations_of(await get_unit(fresh, address.name))
    assert annotations[names.ANNOTATION_SOURCE_STOCK_UID] == claimed["metadata"]["uid"]
    faults.held("the claim of a dead restore is used by the next one")


async def test_a_restore_that_dies_around_pulumi_leaves_nothing_that_the_next_one_cannot_finish(
    lost: Lost, empty: RunningCluster, faults: FaultReport
) -> None:
    for moment in lost.story.moments:
        told = await restore(empty, lost.place, "--only", "gpu-unit/default.again-b-0[12]", fault=moment)
        assert told.code == -signal.SIGKILL, told.errors
        faults.hit(moment)


async def test_interrupted_and_killed_halfway_the_next_one_goes_on_and_only_a_live_holder_keeps_its_lock(
    lost: Lost, empty: RunningCluster, fresh: KubeClient, faults: FaultReport
) -> None:
    dead, live, elsewhere = (unit_stack(f"again-a-0{number}") for number in range(3))
    plant_lock(lost.place, dead, pid=dead_pid())
    theirs = plant_lock(lost.place, elsewhere, pid=1, host=f"not-{socket.gethostname()}")
    with working_on(live.stack) as pid:
        lock = plant_lock(lost.place, live, pid=pid)
        async with restoring(empty, lost.place) as process:
            await is_under_way(fresh, process.pid, lost.story.halfway)
            process.send_signal(signal.SIGINT)
            output, errors = await process.communicate()
            assert process.returncode == 130, output.decode() + errors.decode()
            faults.hit("restore: SIGINT")
        assert await held_by(fresh, process.pid) == []
        async with restoring(empty, lost.place) as process:
            await is_under_way(fresh, process.pid, lost.story.halfway)
            process.kill()
            await process.communicate()
            assert process.returncode == -signal.SIGKILL
            faults.hit("restore: SIGKILL")
        assert len(await names_of_units(fresh)) < len(lost.story.units)

        told = await restore(empty, lost.place, "--json")
        assert told.code == 1
        failed = {stack for stack, result in told.results().items() if result == "failed"}
        assert failed == {live.full_name, elsewhere.full_name}, told.output
        assert f"(pid {pid})" in told.reason_of(live.full_name)
        assert lock.exists()
        assert theirs.exists()

        told = await restore(empty, lost.place, "--break-locks", "--json")
        assert told.code == 1
        assert told.results()[elsewhere.full_name] == "restored"
        assert told.results()[live.full_name] == "failed"
        assert lock.exists()
    told = await restore(empty, lost.place, "--only", live.full_name, "--json")
    assert told.code == 0, told.output
    assert lost.place.locks() == []
    faults.held("only a live holder keeps its lock")


async def test_all_of_it_is_ready_with_equal_specs_and_no_stock_was_claimed_twice(
    lost: Lost, fresh: KubeClient, faults: FaultReport
) -> None:
    units = [await eventually(partial(_ready_unit, fresh, name)) for name in lost.story.units]
    assert await read_accepted(fresh, lost.story) == lost.accepted
    assert len((await fresh.get(GPU_UNITS.collection(INSTANCES)))["items"]) == len(lost.story.units)

    sources = [annotations_of(unit).get(names.ANNOTATION_SOURCE_STOCK_UID) for unit in units]
    taken = [source for source in sources if source is not None]
    assert len(set(taken)) == len(taken)
    assert None not in sources[lost.story.per_pool :]
    await wait_pool_available(fresh, REFILLING, lost.story.refilled)
    await wait_pool_available(fresh, SEEDED, 1)

    async def nothing_is_claimed() -> bool:
        stock = [each for pool in (REFILLING, SEEDED) for each in await stock_of(fresh, pool)]
        return not any(claim_holder_of(each) for each in stock)

    await eventually(nothing_is_claimed)
    faults.held("equal specs", "no stock is claimed twice")


async def test_the_index_says_recorded_and_a_second_restore_does_nothing(
    lost: Lost, empty: RunningCluster, fresh: KubeClient, faults: FaultReport
) -> None:
    before = await index_of(fresh)
    assert len(before) == len(lost.story.stacks)
    assert [lease for lease in before if holder_of(lease)] == []
    for address in lost.story.stacks:
        record = await find_record(fresh, address)
        assert record is not None
        assert record.error is None
        assert record.recorded is not None
        assert record.recorded.accepted_spec == lost.accepted[address]
    told = await restore(empty, lost.place, "--json")
    assert told.code == 0, told.output
    assert told.results() == {address.full_name: "already there" for address in lost.story.stacks}
    assert await index_of(fresh) == before
    faults.held("every stack is recorded", "a second restore does nothing")


async def test_a_replay_finds_its_unit_and_the_worker_has_nothing_to_do_but_what_is_lost_later(
    lost: Lost, empty: RunningCluster, fresh: KubeClient, daemons: AsyncExitStack
) -> None:
    name = lost.story.units[-1]
    log = lost.place.root / "api.log"
    _, url = await daemons.enter_async_context(api_process(empty.kubeconfig, log))
    api = await daemons.enter_async_context(open_api(url, empty.record.api_key))
    await wait_ready(api)
    before = await get_unit(fresh, name)
    replayed = await api.post(UNITS, json=build_wish(name))
    assert replayed.status_code == 200, replayed.text
    assert (await get_unit(fresh, name))["metadata"]["uid"] == before["metadata"]["uid"]
    assert (await api.post(UNITS, json={**build_wish(name), "image": "example/other"})).status_code == 409
    assert (await api.post(FUNCTIONS, json=FUNCTION)).status_code == 200
    for request in lost.story.pool_requests:
        assert (await api.post(POOLS, json=request)).status_code == 200

    async with stack_worker(empty, lost.place, name="afterwards") as worker:
        await worker.says("worker.started")
        await fresh.delete(GPU_UNITS.item(name, INSTANCES))

        async def is_back() -> bool:
            unit = await find(fresh, GPU_UNITS.item(name, INSTANCES))
            return unit is not None and unit["metadata"]["uid"] != before["metadata"]["uid"]

        await eventually(is_back)
        await worker.says("stack.done")
        done = [(entry["stack"], entry["action"]) for entry in worker.entries() if entry["message"] == "stack.done"]
        assert done == [(unit_stack(name).lease, "PUT_BACK")]


async def index_of(kube: KubeClient) -> list[Json]:
    answer = await kube.get(LEASES.collection(names.SYSTEM_NAMESPACE), {"labelSelector": LABEL_KIND})
    return list(answer["items"])


async def names_of_units(kube: KubeClient) -> set[str]:
    return {unit["metadata"]["name"] for unit in (await kube.get(GPU_UNITS.collection(INSTANCES)))["items"]}


async def held_by(kube: KubeClient, pid: int) -> list[Json]:
    return [lease for lease in await index_of(kube) if f"_{pid}_" in holder_of(lease)]


async def is_under_way(kube: KubeClient, pid: int, more: int) -> None:
    """This process works on a stack, and has made some more units since the question was asked first."""
    before = len(await names_of_units(kube))

    async def question() -> bool | NotYet:
        made = len(await names_of_units(kube)) - before
        return (made >= more and bool(await held_by(kube, pid))) or NotYet(made)

    await eventually(question)


async def _ready_unit(kube: KubeClient, name: str) -> Json | None:
    unit = await get_unit(kube, name)
    return unit if unit.get("status", {}).get("phase") == "Ready" else None
