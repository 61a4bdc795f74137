"""Every unit, function and pool that the API accepted has a stack of its own, and Pulumi makes nobody wait."""

from collections.abc import AsyncIterator

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, PatchType
from gpu_platform.kube.paths import GPU_FUNCTIONS, GPU_UNITS, STOCK_POOLS
from gpu_platform.store.stack_leases import find_record
from tests.support.api import UNITS
from tests.support.clusters import RunningCluster
from tests.support.daemons import Daemon
from tests.support.functions import FUNCTIONS, build_function_request
from tests.support.stack_workers import (
    StackPlace,
    accepted_spec_of,
    cleared_worker,
    delete_units,
    expect_stack_deleted,
    function_stack,
    pool_stack,
    post_recorded,
    read_metrics,
    unit_stack,
    wait_idle,
    wait_recorded,
)
from tests.support.units_and_stock import (
    INSTANCES,
    STOCK,
    create_unit,
    delete_unit,
    ensure_spec,
    find,
    get_unit,
    stock_pool,
    unit_body,
)
from tests.support.units_api import (
    SPEC,
    delete_operations,
    post_ready_unit,
    post_unit,
    rest_unit,
    spec_body,
    wait_unit_view,
)
from tests.support.waiting import eventually

POOL = "stacked"
POOLS = "/api/v1/operator/stockpools"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> StackPlace:
    return StackPlace(tmp_path_factory.mktemp("stacks"))


@pytest.fixture(scope="module")
async def stock(kube: KubeClient) -> AsyncIterator[None]:
    await ensure_spec(kube, spec_body(SPEC))
    async with stock_pool(kube, POOL, 4, specName=SPEC):
        yield


@pytest.fixture(scope="module")
async def worker(
    cluster: RunningCluster,
    kube: KubeClient,
    place: StackPlace,
    stock: None,  # noqa: ARG001 - units are made from it
) -> AsyncIterator[Daemon]:
    async with cleared_worker(cluster, kube, place) as daemon:
        yield daemon


@pytest.mark.usefixtures("worker")
async def test_a_units_stack_says_what_its_custom_resource_says_until_both_are_gone(
    api: httpx.AsyncClient, kube: KubeClient, place: StackPlace
) -> None:
    await post_ready_unit(api, "stacked-1")
    unit = await get_unit(kube, "stacked-1")
    address = unit_stack("stacked-1")
    record = await wait_recorded(kube, address, accepted_spec_of(unit))
    assert record.uid == unit["metadata"]["uid"]
    assert record.recorded is not None
    assert record.intent is not None
    assert (record.recorded.resources, record.recorded.outputs["uid"]) == (1, record.uid)
    assert place.inputs_of(address)["spec"] == record.intent.spec

    answer = await api.put(f"{UNITS}/stacked-1", json={"image": "example/changed"})
    assert answer.status_code == 200
    await wait_recorded(kube, address, accepted_spec_of(await get_unit(kube, "stacked-1")))
    assert place.inputs_of(address)["spec"]["image"] == "example/changed"

    await delete_units(api, kube, "stacked-1")
    assert place.files_of(address) == []


@pytest.mark.usefixtures("worker")
async def test_a_pool_that_was_made_over_rest_has_a_stack_too(
    api: httpx.AsyncClient, kube: KubeClient, place: StackPlace
) -> None:
    request = {"operationID": "stacked-pool", "name": "stacked-pool", "specName": SPEC, "replicas": 1}
    assert (await api.post(POOLS, json=request)).status_code == 202
    await eventually(lambda: find(kube, STOCK_POOLS.item("stacked-pool", STOCK)))
    address = pool_stack("stacked-pool")
    pool = await kube.get(STOCK_POOLS.item("stacked-pool", STOCK))
    record = await wait_recorded(kube, address, accepted_spec_of(pool))
    assert record.uid == pool["metadata"]["uid"]

    assert (await api.put(f"{POOLS}/stacked-pool", json={"replicas": 0})).status_code == 200
    await wait_recorded(kube, address, accepted_spec_of(await kube.get(STOCK_POOLS.item("stacked-pool", STOCK))))
    assert place.inputs_of(address)["spec"]["replicas"] == 0

    assert (await api.delete(f"{POOLS}/stacked-pool")).status_code == 204
    await expect_stack_deleted(kube, address)
    assert place.files_of(address) == []


@pytest.mark.usefixtures("worker")
async def test_a_functions_stack_is_kept_from_its_declaration_to_its_end(
    api: httpx.AsyncClient, kube: KubeClient, place: StackPlace
) -> None:
    path, address = GPU_FUNCTIONS.item("stacked-words", INSTANCES), function_stack("stacked-words")
    await post_recorded(api, FUNCTIONS, build_function_request("stacked-words"))
    function = await kube.get(path)
    record = await wait_recorded(kube, address, accepted_spec_of(function))
    assert record.uid == function["metadata"]["uid"]
    stack = (await api.get(f"{FUNCTIONS}/stacked-words/stack")).json()["data"]
    assert (stack["name"], stack["recorded"], stack["resources"]) == (address.full_name, True, 1)

    assert (await api.put(f"{FUNCTIONS}/stacked-words", json={"queueLimit": 7})).status_code == 200
    await wait_recorded(kube, address, accepted_spec_of(await kube.get(path)))
    assert place.inputs_of(address)["spec"]["queueLimit"] == 7

    await kube.patch(path, {"spec": {"queueLimit": 9}}, PatchType.MERGE)

    async def is_as_accepted() -> bool:
        return bool((await kube.get(path))["spec"]["queueLimit"] == 7)

    await eventually(is_as_accepted)

    await kube.delete(path)

    async def is_back() -> bool:
        found = await find(kube, path)
        return found is not None and found["metadata"]["uid"] != function["metadata"]["uid"]

    await eventually(is_back)
    assert (await kube.get(path))["spec"]["queueLimit"] == 7
    replay = await api.post(FUNCTIONS, json=build_function_request("stacked-words"))
    assert (replay.status_code, replay.json()["data"]["queueLimit"]) == (200, 7)

    assert (await api.delete(f"{FUNCTIONS}/stacked-words")).status_code == 204
    await expect_stack_deleted(kube, address)
    assert place.files_of(address) == []
    assert await find(kube, path) is None
    await delete_operations(kube, "stacked-words")


async def test_what_kubectl_made_and_what_another_stack_owns_has_no_stack(kube: KubeClient, worker: Daemon) -> None:
    owned = unit_body("stacked-owned", running=False)
    owned["metadata"]["annotations"] = {
        names.ANNOTATION_OWNER_STACK: "shop/prod",
        names.ANNOTATION_ACCEPTED_SPEC: '{"specName":"g1.1"}',
    }
    before = await count_passes(worker)
    made = [await create_unit(kube, unit_body("stacked-own", running=False)), await create_unit(kube, owned)]

    async def both_were_seen() -> bool:
        return await count_passes(worker) >= before + len(made)

    await eventually(both_were_seen)
    await wait_idle(worker)
    for unit in made:
        assert await find_record(kube, unit_stack(unit["metadata"]["name"])) is None
        await delete_unit(kube, unit["metadata"]["name"])


async def count_passes(worker: Daemon) -> float:
    metrics = await read_metrics(worker)
    return sum(value for name, value in metrics.items() if name.startswith('passes_total{controller="stacks"'))


@pytest.mark.usefixtures("worker")
async def test_a_new_unit_under_the_name_of_a_deleted_one_has_a_stack_of_its_own(
    api: httpx.AsyncClient, kube: KubeClient, place: StackPlace
) -> None:
    address = unit_stack("stacked-again")
    await post_ready_unit(api, "stacked-again")
    first = await get_unit(kube, "stacked-again")
    await wait_recorded(kube, address, accepted_spec_of(first))
    assert (await api.delete(f"{UNITS}/stacked-again")).status_code == 204

    async def is_gone() -> bool:
        return (await api.get(f"{UNITS}/stacked-again")).status_code == 404

    await eventually(is_gone, every=0.01)
    await post_unit(api, "stacked-again", image="example/second", operationID="op-stacked-again-2")
    second = await get_unit(kube, "stacked-again")
    record = await wait_recorded(kube, address, accepted_spec_of(second))
    assert record.uid == second["metadata"]["uid"] != first["metadata"]["uid"]
    assert place.inputs_of(address)["operationID"] == "op-stacked-again-2"
    await wait_unit_view(api, "stacked-again", "Ready")
    await delete_units(api, kube, "stacked-again")


@pytest.mark.usefixtures("worker")
async def test_a_unit_that_somebody_deleted_behind_the_platforms_back_is_made_again(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    await post_ready_unit(api, "stacked-back")
    before = await get_unit(kube, "stacked-back")
    await wait_recorded(kube, unit_stack("stacked-back"), accepted_spec_of(before))
    await kube.delete(GPU_UNITS.item("stacked-back", INSTANCES))

    async def is_back() -> Json | None:
        found = await find(kube, GPU_UNITS.item("stacked-back", INSTANCES))
        return found if found is not None and found["metadata"]["uid"] != before["metadata"]["uid"] else None

    after = await eventually(is_back)
    assert (after["spec"], accepted_spec_of(after)) == (before["spec"], accepted_spec_of(before))
    await wait_unit_view(api, "stacked-back", "Ready")
    replay = await api.post(UNITS, json=rest_unit("stacked-back"))
    assert (replay.status_code, replay.json()["data"]["name"]) == (200, "stacked-back")

    async def is_recorded_anew() -> bool:
        record = await find_record(kube, unit_stack("stacked-back"))
        return record is not None and record.uid == after["metadata"]["uid"]

    await eventually(is_recorded_anew)
    await delete_units(api, kube, "stacked-back")


@pytest.mark.usefixtures("worker")
async def test_units_are_served_while_the_backend_is_away_and_recorded_once_it_is_back(
    api: httpx.AsyncClient, kube: KubeClient, place: StackPlace
) -> None:
    aside = place.root / "aside"
    place.backend.rename(aside)
    place.backend.write_text("not a directory")
    try:
        for name in ("served-1", "served-2"):
            await post_ready_unit(api, name)

        async def is_told() -> bool:
            record = await find_record(kube, unit_stack("served-1"))
            return record is not None and record.error is not None and record.recorded is None

        await eventually(is_told, every=0.1)
    finally:
        place.backend.unlink()
        aside.rename(place.backend)
    for name in ("served-1", "served-2"):
        record = await wait_recorded(kube, unit_stack(name), accepted_spec_of(await get_unit(kube, name)))
        assert record.error is None
    await delete_units(api, kube, "served-1", "served-2")
