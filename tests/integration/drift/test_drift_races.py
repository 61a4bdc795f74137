"""Drift against wishes, raced: what the API accepted is never taken back, whatever happens at the same time.

`make test` runs a few races, `make faults` many.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from gpu_platform.clock import now_utc
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import OPERATORS
from gpu_platform.kube import ConflictError, KubeClient, NotFoundError, open_client
from gpu_platform.kube.paths import GPU_UNITS
from gpu_platform.pulumi_protocol.properties import Properties
from gpu_platform.pulumi_protocol.resource import Resource, ResourceFailedError
from gpu_platform.store.ledger import build_deletion, open_operation
from gpu_platform.store.stack_leases import find_record
from providers.cluster.kinds import KINDS
from providers.cluster.lifecycle import Lifecycle
from providers.cluster.resources import GPU_FUNCTION, GPU_STORAGE, GPU_UNIT, STOCK_POOL
from providers.cluster.servicer import Sessions
from tests.support.api import UNITS
from tests.support.clusters import RunningCluster
from tests.support.daemons import Daemon
from tests.support.drift import SPEC, drifting_stock, edit_unit, post_drift_unit
from tests.support.fault_report import FaultReport
from tests.support.figures import read_worker_figure
from tests.support.stack_workers import (
    StackPlace,
    accepted_spec_of,
    cleared_worker,
    delete_units,
    expect_stack_deleted,
    unit_stack,
)
from tests.support.units_and_stock import INSTANCES, STOCK, find, get_unit
from tests.support.units_api import delete_operations, post_unit
from tests.support.waiting import NotYet, eventually

AT_ONCE = 5
SPECS: dict[str, Json] = {
    GPU_UNIT: {"specName": SPEC, "image": "example/train", "running": False},
    GPU_STORAGE: {"size": "1Gi"},
    GPU_FUNCTION: {"specName": SPEC, "image": "example/train"},
    STOCK_POOL: {"specName": SPEC, "replicas": 0},
}
BACKLOG_SECONDS = 300
"""For a hundred runs of Pulumi, on a machine that has other things to do."""


@pytest.fixture(scope="module")
async def worker(
    cluster: RunningCluster, kube: KubeClient, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Daemon]:
    place = StackPlace(tmp_path_factory.mktemp("drift"))
    async with drifting_stock(kube, "racing", 12), cleared_worker(cluster, kube, place) as daemon:
        yield daemon


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("token", SPECS)
async def test_a_recording_that_comes_too_late_makes_nothing_whose_end_was_asked_for(
    cluster: RunningCluster, kube: KubeClient, monkeypatch: pytest.MonkeyPatch, token: str, is_late: bool
) -> None:
    """The deletion is accepted before the recording looks, or between its look and its write. The recording has the
    roles of the stack worker. No worker runs yet."""
    kind = KINDS[token]
    name = f"drift-late-{kind.name}-{is_late}".lower()
    tenant, namespace = ("default", INSTANCES) if kind.is_of_tenant else (OPERATORS, STOCK)
    gone: Json = {"kind": kind.name, "metadata": {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"}}
    resource = Resource(f"urn:pulumi:{tenant}.{name}::recorded::{token}::{name}", token)
    inputs = {"name": name, "spec": SPECS[token], "objectUID": gone["metadata"]["uid"]}
    if kind.is_of_tenant:
        inputs["tenant"] = tenant

    async with await open_client(cluster.stack_worker_kubeconfig) as client:
        create = client.create

        async def create_and_ask(path: str, body: Json, *options: Any) -> Json:
            made = await create(path, body, *options)
            if body["kind"] == kind.name:
                await open_operation(kube, build_deletion(gone, tenant))
            return made

        if is_late:
            monkeypatch.setattr(client, "create", create_and_ask)
        else:
            await open_operation(kube, build_deletion(gone, tenant))
        lifecycle = Lifecycle(client, kind, Sessions().of("engine"), now_utc)

        with pytest.raises(ResourceFailedError, match="its end was asked for"):
            await lifecycle.create(resource, Properties(inputs))

    async def is_gone() -> bool:
        return await find(kube, kind.path.item(name, namespace)) is None

    await eventually(is_gone)
    await delete_operations(kube, name, namespace)


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(("count", "rounds"), [(2, 2), pytest.param(AT_ONCE, 10, marks=pytest.mark.faults)])
async def test_a_change_that_the_api_accepts_is_never_reverted_whoever_edits_at_the_same_time(
    api: httpx.AsyncClient, kube: KubeClient, count: int, rounds: int, faults: FaultReport
) -> None:
    units = [f"drift-put-{number}" for number in range(count)]
    for name in units:
        await post_drift_unit(api, name)
    chance = random.Random(8)

    async def race(name: str, number: int) -> None:
        async def edit_meanwhile() -> None:
            await asyncio.sleep(chance.uniform(0, 0.03))
            await edit_unit(kube, name, image=f"example/edited-{number}")

        async def change() -> None:
            await asyncio.sleep(chance.uniform(0, 0.03))
            answer = await api.put(f"{UNITS}/{name}", json={"image": f"example/put-{number}"})
            assert answer.status_code == 200, answer.text

        await asyncio.gather(edit_meanwhile(), change())

        async def is_as_put() -> bool:
            unit = await get_unit(kube, name)
            wanted = f"example/put-{number}"
            assert f'"image":"{wanted}"' in accepted_spec_of(unit), "an edit was accepted, or the change reverted"
            return bool(unit["spec"]["image"] == wanted)

        await eventually(is_as_put)

    for number in range(rounds):
        await asyncio.gather(*(race(name, number) for name in units))
        faults.hit("edits beside accepted changes", count)
    faults.held("what was accepted is not taken back")
    await delete_units(api, kube, *units)


@pytest.mark.parametrize("races", [3, pytest.param(50, marks=[pytest.mark.faults, pytest.mark.timeout(1_800)])])
async def test_a_wish_to_delete_is_never_undone_whatever_happens_at_the_same_time(
    api: httpx.AsyncClient, kube: KubeClient, worker: Daemon, races: int, faults: FaultReport
) -> None:
    """Edited, recorded, or deleted with kubectl at the same time."""
    names_of_units = [f"drift-delete-{number}" for number in range(races)]
    chance = random.Random(9)
    unheard: set[str] = set()

    async def race(name: str, number: int) -> None:
        await post_unit(api, name, specName=SPEC)
        # From before its stack has begun until it is recorded.
        await asyncio.sleep(chance.uniform(0, 4))

        async def delete() -> int:
            await asyncio.sleep(chance.uniform(0, 0.05))
            return (await api.delete(f"{UNITS}/{name}")).status_code

        status, _ = await asyncio.gather(delete(), meddle(kube, name, number, chance))
        assert status in (204, 404)
        if status == 404:
            unheard.add(name)

    for first in range(0, races, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, races))
        await asyncio.gather(*(race(names_of_units[number], number) for number in numbers))
    faults.hit("edits and deletions beside a wish to delete", races)

    async def are_gone() -> bool | NotYet:
        found = {unit["metadata"]["name"] for unit in (await kube.get(GPU_UNITS.collection(INSTANCES)))["items"]}
        return found.isdisjoint(names_of_units) or NotYet(found)

    async def are_gone_for_good() -> bool | NotYet:
        """Where kubectl was faster, no deletion was recorded and the unit was created again: delete it over the API."""
        for name in unheard:
            await api.delete(f"{UNITS}/{name}")
        left = [name for name in names_of_units if await find_record(kube, unit_stack(name)) is not None]
        due = await read_worker_figure(worker, "due_stacks")
        queued = await read_worker_figure(worker, "queue_length", controller="stacks")
        seen = left, due, queued
        return (await are_gone() and not any(seen)) or NotYet(seen)

    await eventually(are_gone_for_good, within=BACKLOG_SECONDS, every=0.2)
    for name in names_of_units:
        await expect_stack_deleted(kube, unit_stack(name))
    # The worker has nothing left to do that could bring one back.
    assert await are_gone()
    faults.held("what was deleted stays deleted")
    for name in names_of_units:
        await delete_operations(kube, name)


async def meddle(kube: KubeClient, name: str, number: int, chance: random.Random) -> None:
    await asyncio.sleep(chance.uniform(0, 0.05))
    with suppress(ConflictError, NotFoundError):
        if number % 3 == 0:
            await kube.delete(GPU_UNITS.item(name, INSTANCES))
        else:
            await edit_unit(kube, name, image="example/edited")
