"""A cluster is lost. A second, empty one becomes the same platform from the Pulumi state alone, whoever dies meanwhile.

The tests stand in the order of the story: each finds what the one before it left.
"""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpu_platform.adapters.kube import KubeClient, open_client
from gpu_platform.adapters.kube.paths import GPU_SPECS, GPU_UNITS, LEASES
from gpu_platform.adapters.stack_leases import find_record, holder_of
from gpu_platform.adapters.stack_looks import PATHS
from gpu_platform.domain import names
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.stack_records import LABEL_KIND
from gpu_platform.domain.stacks import StackAddress
from gpu_platform.domain.stock import claim_holder_of
from tests.architecture.repository import ROOT
from tests.support.api import UNITS, api_process, open_api, unit_request, wait_ready
from tests.support.bootstrap import PLATFORM, SECONDS
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.daemons import running_daemon
from tests.support.functions_api import FUNCTIONS, build_function_request, remove_function
from tests.support.operator_api import POOLS, remove, remove_pool, wait_job
from tests.support.restore import dead_pid, plant_lock, restore, restoring, working_on
from tests.support.stack_workers import (
    PASSPHRASE,
    StackPlace,
    clear_index,
    function_stack,
    pool_stack,
    stack_worker,
    unit_stack,
    wait_recorded,
)
from tests.support.units_and_stock import INSTANCES, ensure_spec, find, get_unit, stock_of, wait_pool_available
from tests.support.units_api import delete_operations, spec_body
from tests.support.waiting import eventually

Json = dict[str, Any]

BUSY = 240.0
"""Seconds for what takes twenty on idle cores."""

SPEC_NAMES = ("again-a.0", "again-b.0")
REFILLING, SEEDED = "again-a", "again-b"
"""Pools: one that is filled up again, and holds less than is rented; one that was made once, with one unit to spare."""

PER_POOL = 15
POOL_REQUESTS: tuple[Json, ...] = (
    {"operationID": "op-again-a", "name": REFILLING, "specName": SPEC_NAMES[0], "replicas": 6},
    {
        "operationID": "op-again-b",
        "name": SEEDED,
        "specName": SPEC_NAMES[1],
        "replicas": PER_POOL + 1,
        "replenish": "Never",
    },
)
UNIT_NAMES = tuple(f"again-{kind}-{number:02}" for kind in "ab" for number in range(PER_POOL))
FUNCTION = build_function_request("again-words", specName=SPEC_NAMES[0], maxWorkers=2)
STACKS = {
    *(unit_stack(name) for name in UNIT_NAMES),
    function_stack("again-words"),
    pool_stack(REFILLING),
    pool_stack(SEEDED),
}


def wish(name: str) -> Json:
    spec = SPEC_NAMES[0 if name.startswith("again-a") else 1]
    ports = [{"name": "http", "port": 8000}]
    return unit_request(name, specName=spec, image=f"example/{name}", template={"ports": ports})


def spec_of(name: str) -> Json:
    """Without GPUs, so that they fit beside whatever other tests have."""
    return spec_body(name, cpu="10m", memory="16Mi", gpu=0)


@dataclass(frozen=True)
class Lost:
    """What is left of the first cluster."""

    place: StackPlace
    infra_state: Path
    accepted: dict[StackAddress, str]
    """The accepted spec of each unit, function and pool."""


@pytest.fixture(scope="module")
async def lost(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient, tmp_path_factory: pytest.TempPathFactory
) -> Lost:
    """The session's cluster stands for it. What was made there for this is gone again, but for the Pulumi state."""
    await clear_index(kube)
    place = StackPlace(tmp_path_factory.mktemp("restored"))
    for name in SPEC_NAMES:
        await ensure_spec(kube, spec_of(name))
    async with stack_worker(cluster, place):
        for request in POOL_REQUESTS:
            assert (await api.post(POOLS, json=request)).status_code == 202
            await wait_job(api, request["operationID"], within=BUSY)
        assert (await api.post(FUNCTIONS, json=FUNCTION)).status_code == 201
        for name in UNIT_NAMES:
            # A pool may have to refill in between.
            await eventually(partial(_is_accepted, api, name), within=BUSY, every=0.2)
        accepted = {address: await _accepted_spec(kube, address) for address in STACKS}
        for address, spec in accepted.items():
            await wait_recorded(kube, address, spec, within=BUSY)
    place.keep_only(STACKS)
    infra_state = place.root / "infra-state"
    shutil.copytree(cluster.directory.pulumi_state, infra_state)
    await _clear_away(api, kube)
    return Lost(place, infra_state, accepted)


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
    for name in SPEC_NAMES:
        await ensure_spec(fresh, spec_of(name))

    told = await restore(empty, lost.place, "--dry-run", "--json")
    assert told.code == 0
    assert told.plan() == {address.full_name: "make" for address in STACKS}
    assert await index_of(fresh) == []
    for path in PATHS.values():
        assert (await fresh.get(path.collection()))["items"] == []


async def test_a_claim_of_a_restore_that_died_is_the_one_that_the_next_one_uses(
    lost: Lost, empty: RunningCluster, fresh: KubeClient
) -> None:
    told = await restore(empty, lost.place, "--only", "stock-pool/*", "--json")
    assert told.code == 0, told.errors
    await wait_pool_available(fresh, SEEDED, PER_POOL + 1, within=BUSY)
    address = unit_stack("again-b-00")
    told = await restore(empty, lost.place, "--only", address.full_name, fault="provider.stock-claimed")
    assert told.code == -signal.SIGKILL
    assert await find(fresh, GPU_UNITS.item(address.name, INSTANCES)) is None
    [claimed] = [stock for stock in await stock_of(fresh, SEEDED) if claim_holder_of(stock)]

    told = await restore(empty, lost.place, "--only", address.full_name, "--json")
    assert told.code == 0, told.output
    annotations = annotations_of(await get_unit(fresh, address.name))
    assert annotations[names.ANNOTATION_SOURCE_STOCK_UID] == claimed["metadata"]["uid"]


@pytest.mark.parametrize(
    "moment", ["restore.lease-taken", "restore.pulumi-done", "restore.ledger-written", "restore.index-written"]
)
async def test_a_restore_that_dies_around_pulumi_leaves_nothing_that_the_next_one_cannot_finish(
    lost: Lost, empty: RunningCluster, moment: str
) -> None:
    told = await restore(empty, lost.place, "--only", "gpu-unit/default.again-b-0[12]", fault=moment)
    assert told.code == -signal.SIGKILL


async def test_interrupted_and_killed_halfway_the_next_one_goes_on_and_only_a_live_holder_keeps_its_lock(
    lost: Lost, empty: RunningCluster, fresh: KubeClient
) -> None:
    dead, live, elsewhere = (unit_stack(f"again-a-0{number}") for number in range(3))
    plant_lock(lost.place, dead, pid=dead_pid())
    theirs = plant_lock(lost.place, elsewhere, pid=1, host=f"not-{socket.gethostname()}")
    with working_on(live.stack) as pid:
        lock = plant_lock(lost.place, live, pid=pid)
        async with restoring(empty, lost.place) as process:
            await eventually(partial(_has_units, fresh, len(UNIT_NAMES) // 3), within=BUSY, every=0.05)
            process.send_signal(signal.SIGINT)
            output, errors = await process.communicate()
            assert process.returncode == 130, output.decode() + errors.decode()
        assert [lease for lease in await index_of(fresh) if f"_{process.pid}_" in holder_of(lease)] == []
        async with restoring(empty, lost.place) as process:
            await eventually(partial(_has_units, fresh, 2 * len(UNIT_NAMES) // 3), within=BUSY, every=0.05)
            process.kill()
            await process.communicate()
        assert not await _has_units(fresh, len(UNIT_NAMES))

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


async def test_all_of_it_is_ready_with_equal_specs_and_no_stock_was_claimed_twice(
    lost: Lost, fresh: KubeClient
) -> None:
    units = [await eventually(partial(_ready_unit, fresh, name), within=BUSY) for name in UNIT_NAMES]
    assert {address: await _accepted_spec(fresh, address) for address in STACKS} == lost.accepted
    assert len((await fresh.get(GPU_UNITS.collection(INSTANCES)))["items"]) == len(UNIT_NAMES)

    sources = [annotations_of(unit).get(names.ANNOTATION_SOURCE_STOCK_UID) for unit in units]
    taken = [source for source in sources if source is not None]
    assert len(set(taken)) == len(taken)
    assert None not in sources[PER_POOL:]
    await wait_pool_available(fresh, REFILLING, 6, within=BUSY)
    await wait_pool_available(fresh, SEEDED, 1, within=BUSY)

    async def nothing_is_claimed() -> bool:
        stock = [each for pool in (REFILLING, SEEDED) for each in await stock_of(fresh, pool)]
        return not any(claim_holder_of(each) for each in stock)

    await eventually(nothing_is_claimed, within=BUSY)


async def test_the_index_says_recorded_and_a_second_restore_does_nothing(
    lost: Lost, empty: RunningCluster, fresh: KubeClient
) -> None:
    before = await index_of(fresh)
    assert len(before) == len(STACKS)
    assert [lease for lease in before if holder_of(lease)] == []
    for address in STACKS:
        record = await find_record(fresh, address)
        assert record is not None
        assert record.error is None
        assert record.recorded is not None
        assert record.recorded.accepted_spec == lost.accepted[address]
    told = await restore(empty, lost.place, "--json")
    assert told.code == 0, told.output
    assert told.results() == {address.full_name: "already there" for address in STACKS}
    assert await index_of(fresh) == before


async def test_a_replay_finds_its_unit_and_the_worker_has_nothing_to_do_but_what_is_lost_later(
    lost: Lost, empty: RunningCluster, fresh: KubeClient, daemons: AsyncExitStack
) -> None:
    log = lost.place.root / "api.log"
    _, url = await daemons.enter_async_context(api_process(empty.kubeconfig, log))
    api = await daemons.enter_async_context(open_api(url, empty.record.api_key))
    await wait_ready(api, within=BUSY)
    before = await get_unit(fresh, "again-b-05")
    replayed = await api.post(UNITS, json=wish("again-b-05"))
    assert replayed.status_code == 200, replayed.text
    assert (await get_unit(fresh, "again-b-05"))["metadata"]["uid"] == before["metadata"]["uid"]
    assert (await api.post(UNITS, json={**wish("again-b-05"), "image": "example/other"})).status_code == 409
    assert (await api.post(FUNCTIONS, json=FUNCTION)).status_code == 200
    for request in POOL_REQUESTS:
        assert (await api.post(POOLS, json=request)).status_code == 200

    async with stack_worker(empty, lost.place, name="afterwards") as worker:
        await worker.says("worker.started", within=BUSY)
        await fresh.delete(GPU_UNITS.item("again-b-05", INSTANCES))

        async def is_back() -> bool:
            unit = await find(fresh, GPU_UNITS.item("again-b-05", INSTANCES))
            return unit is not None and unit["metadata"]["uid"] != before["metadata"]["uid"]

        await eventually(is_back, within=BUSY)
        await worker.says("stack.done", within=BUSY)
        done = [(entry["stack"], entry["action"]) for entry in worker.entries() if entry["message"] == "stack.done"]
        assert done == [(unit_stack("again-b-05").lease, "PUT_BACK")]


async def index_of(kube: KubeClient) -> list[Json]:
    answer = await kube.get(LEASES.collection(names.SYSTEM_NAMESPACE), {"labelSelector": LABEL_KIND})
    return list(answer["items"])


async def _is_accepted(api: httpx.AsyncClient, name: str) -> bool:
    return (await api.post(UNITS, json=wish(name))).status_code in (200, 201)


async def _accepted_spec(kube: KubeClient, address: StackAddress) -> str:
    item = await kube.get(PATHS[address.kind].item(address.name, address.namespace))
    return annotations_of(item)[names.ANNOTATION_ACCEPTED_SPEC]


async def _has_units(kube: KubeClient, count: int) -> bool:
    return len((await kube.get(GPU_UNITS.collection(INSTANCES)))["items"]) >= count


async def _ready_unit(kube: KubeClient, name: str) -> Json | None:
    unit = await get_unit(kube, name)
    return unit if unit.get("status", {}).get("phase") == "Ready" else None


async def _clear_away(api: httpx.AsyncClient, kube: KubeClient) -> None:
    await remove_function(api, kube, "again-words")
    for name in UNIT_NAMES:
        assert (await api.delete(f"{UNITS}/{name}")).status_code == 204

    async def are_gone() -> bool:
        units = (await kube.get(GPU_UNITS.collection(INSTANCES)))["items"]
        return not {unit["metadata"]["name"] for unit in units} & set(UNIT_NAMES)

    await eventually(are_gone, within=BUSY)
    for pool in (REFILLING, SEEDED):
        await remove_pool(kube, pool)
    for name in SPEC_NAMES:
        await remove(kube, GPU_SPECS.item(name))
    for name in UNIT_NAMES:
        await delete_operations(kube, name)
    await clear_index(kube)
