"""A unit takes over the GPUs of the stock that was claimed for it."""

from collections import Counter
from collections.abc import Collection

import pytest

from gpu_platform.devcluster.hostnode.node import NODE_NAME
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_UNITS, NODES, PODS, STOCK_POOLS
from tests.support.clusters import GPUS
from tests.support.fault_report import FaultReport
from tests.support.units_and_stock import (
    STOCK,
    claim,
    create_unit,
    delete_unit,
    ensure_spec,
    find,
    stock_of,
    stock_pool,
    unit_body,
    wait_pool_available,
    wait_unit_phase,
)
from tests.support.units_api import spec_body
from tests.support.waiting import NotYet, eventually


async def ready_stock_pods(kube: KubeClient, pool: str) -> dict[str, str]:
    """Uid and name of every stock pod of the pool that holds a GPU."""
    units = {unit["metadata"]["name"] for unit in await stock_of(kube, pool)}
    pods = (await kube.get(PODS.collection(STOCK)))["items"]
    return {
        pod["metadata"]["uid"]: pod["metadata"]["labels"][names.LABEL_UNIT]
        for pod in pods
        if pod["metadata"]["labels"].get(names.LABEL_UNIT) in units
        and any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))
    }


def is_ending(metadata: Json, units: Collection[str]) -> bool:
    """Of a pod: it is being deleted, or will be, as its unit is gone."""
    unit = metadata.get("labels", {}).get(names.LABEL_UNIT_UID)
    return "deletionTimestamp" in metadata or (unit is not None and unit not in units)


async def count_room(kube: KubeClient, gpus: int) -> int:
    """How many pods with so many GPUs fit onto the simulated nodes, once the pods of earlier tests are gone."""

    async def list_settled() -> list[Json] | NotYet:
        pods = (await kube.get(PODS.collection()))["items"]
        units = {unit["metadata"]["uid"] for unit in (await kube.get(GPU_UNITS.collection()))["items"]}
        ending = [pod["metadata"]["name"] for pod in pods if is_ending(pod["metadata"], units)]
        return [{}, *pods] if not ending else NotYet(ending)

    used: Counter[str] = Counter()
    for pod in (await eventually(list_settled))[1:]:
        for container in pod["spec"]["containers"]:
            requests = container.get("resources", {}).get("requests", {})
            used[pod["spec"].get("nodeName", "")] += int(requests.get(names.GPU_RESOURCE, 0))
    nodes = [node["metadata"]["name"] for node in (await kube.get(NODES.collection()))["items"]]
    return sum((GPUS - used[node]) // gpus for node in nodes if node != NODE_NAME)


@pytest.mark.parametrize(("gpus", "rounds"), [(GPUS, 3), pytest.param(1, 20, marks=pytest.mark.faults)])
async def test_in_a_full_cluster_the_unit_runs_where_its_stock_was_and_no_other_stock_is_evicted(
    kube: KubeClient, gpus: int, rounds: int, faults: FaultReport
) -> None:
    """One stock more than there is room for, so that a pending stock pod lurks for every GPU that becomes free."""
    spec, capacity = f"handoff.{gpus}", await count_room(kube, gpus)
    await ensure_spec(kube, spec_body(spec, gpu=gpus))
    async with stock_pool(kube, "full", capacity, specName=spec):
        await kube.patch(STOCK_POOLS.item("full", STOCK), {"spec": {"replicas": capacity + 1}})

        async def one_is_pending() -> bool:
            return len(await stock_of(kube, "full")) == capacity + 1

        await eventually(one_is_pending)
        for number in range(rounds):
            name = f"handoff-{number}"
            before = await ready_stock_pods(kube, "full")
            stock = await claim(kube, "full", name, spec=spec)
            await create_unit(kube, unit_body(name, stock=stock, specName=spec))
            ready = await wait_unit_phase(kube, name, "Ready")
            assert ready["status"]["nodeName"] == stock["status"]["nodeName"]
            after = await ready_stock_pods(kube, "full")
            lost = {unit for uid, unit in before.items() if uid not in after}
            assert lost == {stock["metadata"]["name"]}
            faults.hit("units in a full cluster")

            async def stock_is_consumed(stock: Json = stock) -> bool:
                now = await find(kube, GPU_UNITS.item(stock["metadata"]["name"], STOCK))
                return now is None or now["metadata"]["uid"] != stock["metadata"]["uid"]

            await eventually(stock_is_consumed)
            await delete_unit(kube, name)
            await wait_pool_available(kube, "full", capacity)
        faults.held("a unit runs where its stock was", "no other stock is evicted")


async def test_claimed_stock_is_not_counted_and_the_pool_refills(kube: KubeClient) -> None:
    async with stock_pool(kube, "refill", 2):
        stock = await claim(kube, "refill", "nobody")

        async def counted() -> bool:
            status = (await kube.get(STOCK_POOLS.item("refill", STOCK)))["status"]
            return bool((status["available"], status["claimed"]) == (2, 1))

        await eventually(counted)
        names_now = {unit["metadata"]["name"] for unit in await stock_of(kube, "refill")}
        assert stock["metadata"]["name"] in names_now
        assert len(names_now) == 3


async def test_shrinking_removes_free_stock_only(kube: KubeClient) -> None:
    async with stock_pool(kube, "shrink", 3):
        stock = await claim(kube, "shrink", "somebody")
        await wait_pool_available(kube, "shrink", 3)
        await kube.patch(STOCK_POOLS.item("shrink", STOCK), {"spec": {"replicas": 0}})

        async def only_the_claimed_is_left() -> bool:
            left = [unit["metadata"]["name"] for unit in await stock_of(kube, "shrink")]
            return left == [stock["metadata"]["name"]]

        await eventually(only_the_claimed_is_left)


async def test_a_pool_that_never_replenishes_seeds_once_and_takes_one_back(kube: KubeClient) -> None:
    async with stock_pool(kube, "once", 2, replenish="Never"):
        stock = await claim(kube, "once", "borrower")
        await create_unit(kube, unit_body("borrower", stock=stock))
        await wait_unit_phase(kube, "borrower", "Ready")

        async def stock_is(count: int) -> bool:
            return len(await stock_of(kube, "once")) == count

        await eventually(lambda: stock_is(1))

        async def is_lent() -> bool:
            return bool((await kube.get(STOCK_POOLS.item("once", STOCK)))["status"].get("lent"))

        await eventually(is_lent)
        assert await stock_is(1)
        await delete_unit(kube, "borrower")
        await wait_pool_available(kube, "once", 2)
        assert await stock_is(2)
        [spare, _] = await stock_of(kube, "once")
        await kube.delete(GPU_UNITS.item(spare["metadata"]["name"], STOCK))
        await wait_pool_available(kube, "once", 1)
        assert await stock_is(1)


async def test_a_pool_without_its_spec_fails_with_the_name(kube: KubeClient) -> None:
    body = {
        "apiVersion": names.API_VERSION,
        "kind": "StockPool",
        "metadata": {"name": "lost", "namespace": STOCK},
        "spec": {"specName": "nowhere.1", "replicas": 1},
    }
    await kube.create(STOCK_POOLS.collection(STOCK), body)

    async def failed() -> Json | None:
        pool = await kube.get(STOCK_POOLS.item("lost", STOCK))
        return pool if pool.get("status", {}).get("phase") == "Failed" else None

    pool = await eventually(failed)
    [condition] = pool["status"]["conditions"]
    assert condition["reason"] == "InvalidSpec"
    assert "nowhere.1" in condition["message"]
    await kube.delete(STOCK_POOLS.item("lost", STOCK))


async def test_a_second_unit_cannot_take_over_stock_that_is_claimed_for_the_first(kube: KubeClient) -> None:
    async with stock_pool(kube, "contested", 1):
        stock = await claim(kube, "contested", "first")
        await create_unit(kube, unit_body("second", stock=stock))
        await wait_unit_phase(kube, "second", "Ready")
        assert await find(kube, GPU_UNITS.item(stock["metadata"]["name"], STOCK)) is not None
        await delete_unit(kube, "second")
