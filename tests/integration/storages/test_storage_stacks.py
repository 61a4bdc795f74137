"""Every storage that the API accepted has a stack of its own, and comes back from it with the unit that mounts it."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_STORAGES, GPU_UNITS
from tests.support.api import UNITS
from tests.support.clusters import RunningCluster
from tests.support.restore import restore
from tests.support.stack_workers import (
    StackPlace,
    accepted_spec_of,
    clear_index,
    cleared_worker,
    expect_stack_deleted,
    post_recorded,
    storage_stack,
    unit_stack,
    wait_recorded,
)
from tests.support.storages import (
    STORAGES,
    build_mounts,
    build_storage_request,
    get_storage_view,
    remove_storage,
    wait_unmounted,
)
from tests.support.units_and_stock import INSTANCES, ensure_spec, find, stock_pool, wait_pool_available
from tests.support.units_api import delete_operations, post_unit, remove_unit, rest_unit, spec_body
from tests.support.waiting import eventually

SPEC = "stores.0"
POOL = "stores"


@pytest.fixture(scope="module")
async def stock(kube: KubeClient) -> AsyncIterator[None]:
    await ensure_spec(kube, spec_body(SPEC, gpu=0, cpu="1m", memory="1Mi"))
    async with stock_pool(kube, POOL, 2, specName=SPEC):
        yield


async def test_a_storages_stack_is_kept_from_its_making_to_its_end(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient, tmp_path: Path
) -> None:
    place = StackPlace(tmp_path)
    path, address = GPU_STORAGES.item("stacked-data", INSTANCES), storage_stack("stacked-data")
    async with cleared_worker(cluster, kube, place):
        await post_recorded(api, STORAGES, build_storage_request("stacked-data"))
        storage = await kube.get(path)
        record = await wait_recorded(kube, address, accepted_spec_of(storage))
        assert record.uid == storage["metadata"]["uid"]
        stack = (await api.get(f"{STORAGES}/stacked-data/stack")).json()["data"]
        assert (stack["name"], stack["recorded"], stack["resources"]) == (address.full_name, True, 1)

        assert (await api.put(f"{STORAGES}/stacked-data", json={"size": "2Gi"})).status_code == 200
        await wait_recorded(kube, address, accepted_spec_of(await kube.get(path)))
        assert place.inputs_of(address)["spec"]["size"] == "2Gi"

        await kube.delete(path)

        async def is_back() -> bool:
            found = await find(kube, path)
            return found is not None and found["metadata"]["uid"] != storage["metadata"]["uid"]

        await eventually(is_back)
        back = await kube.get(path)
        assert (back["spec"]["size"], back["metadata"]["finalizers"]) == ("2Gi", [names.STORAGE_FINALIZER])
        replay = await api.post(STORAGES, json=build_storage_request("stacked-data"))
        assert (replay.status_code, replay.json()["data"]["size"]) == (200, "2Gi")

        assert (await api.delete(f"{STORAGES}/stacked-data")).status_code == 204
        await expect_stack_deleted(kube, address)
        assert place.files_of(address) == []
        assert await find(kube, path) is None
    await delete_operations(kube, "stacked-data")


@pytest.mark.usefixtures("stock")
async def test_a_unit_that_was_deleted_behind_the_api_comes_back_with_what_it_mounts(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient, tmp_path: Path
) -> None:
    async with cleared_worker(cluster, kube, StackPlace(tmp_path)):
        assert (await api.post(STORAGES, json=build_storage_request("lasting-data"))).status_code == 201
        mounts = build_mounts("lasting-data")
        await post_recorded(api, UNITS, rest_unit("lasting", specName=SPEC, storageMounts=mounts))
        path = GPU_UNITS.item("lasting", INSTANCES)
        uid = (await kube.get(path))["metadata"]["uid"]
        await wait_pool_available(kube, POOL, 2)
        await kube.delete(path)

        async def is_back() -> bool:
            found = await find(kube, path)
            return found is not None and found["metadata"]["uid"] != uid

        await eventually(is_back)
        assert [mount["name"] for mount in (await kube.get(path))["spec"]["storageMounts"]] == ["lasting-data"]
        assert (await get_storage_view(api, "lasting-data"))["mountedBy"] == ["lasting"]
        await remove_unit(api, kube, "lasting")
        await wait_unmounted(api, "lasting-data")
        assert (await api.delete(f"{STORAGES}/lasting-data")).status_code == 204
        await expect_stack_deleted(kube, storage_stack("lasting-data"))
    await delete_operations(kube, "lasting-data")


@pytest.mark.usefixtures("stock")
async def test_a_restore_makes_storages_before_the_units_that_mount_them(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient, tmp_path: Path
) -> None:
    """All that the cluster knows of both is lost; what is left is Pulumi's state."""
    place = StackPlace(tmp_path)
    stacks = (storage_stack("again-data"), unit_stack("again-user"))
    paths = [GPU_STORAGES.item("again-data", INSTANCES), GPU_UNITS.item("again-user", INSTANCES)]
    unit = rest_unit("again-user", specName=SPEC, storageMounts=build_mounts("again-data"))
    async with cleared_worker(cluster, kube, place):
        assert (await api.post(STORAGES, json=build_storage_request("again-data"))).status_code == 201
        await post_unit(api, "again-user", specName=SPEC, storageMounts=build_mounts("again-data"))
        for path, address in zip(paths, stacks, strict=True):
            await wait_recorded(kube, address, accepted_spec_of(await kube.get(path)))
    for path in reversed(paths):
        await kube.delete(path)

        async def is_gone(path: str = path) -> bool:
            return await find(kube, path) is None

        await eventually(is_gone)
    for name in ("again-data", "again-user"):
        await delete_operations(kube, name)
    place.keep_only(stacks)
    await wait_pool_available(kube, POOL, 2)

    told = await restore(cluster, place, "--json")
    assert told.code == 0, told.output + told.errors
    assert told.results() == {address.full_name: "restored" for address in stacks}
    assert list(told.results()) == [address.full_name for address in stacks]
    assert (await get_storage_view(api, "again-data"))["mountedBy"] == ["again-user"]
    assert (await api.post(STORAGES, json=build_storage_request("again-data"))).status_code == 200
    assert (await api.post(UNITS, json=unit)).status_code == 200
    await remove_unit(api, kube, "again-user")
    await wait_unmounted(api, "again-data")
    await remove_storage(api, kube, "again-data")
    await clear_index(kube)
