"""Units that mount storages, over REST and two API processes: one unit at a time, whoever asks, and whoever dies. With
the parity checks 23, 25 and 46."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import delete_operation_name, operation_name
from gpu_platform.domain.stock import is_claimed
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_STORAGES, GPU_UNITS, OPERATIONS, PODS
from gpu_platform.store.ledger import build_deletion, open_operation
from gpu_platform.store.storages import StorageHeldError, delete_unused_storage, hold_storages, release_storages
from tests.support.api import UNITS, api_process, code_of, open_api, wait_ready
from tests.support.bootstrap import PLATFORM
from tests.support.clusters import RunningCluster
from tests.support.fault_report import FaultReport
from tests.support.storages import (
    STORAGES,
    build_mounts,
    get_storage_view,
    lingering_pod,
    post_storage,
    remove_storage,
    wait_unmounted,
)
from tests.support.units_and_stock import INSTANCES, ensure_spec, find, stock_of, stock_pool, wait_pool_available
from tests.support.units_api import delete_operations, remove_unit, rest_unit, spec_body
from tests.support.waiting import eventually

SPEC = "mounts.0"
POOL = "mounts"
STOCK_UNITS = 4


@pytest.fixture(scope="module", autouse=True)
async def stock(kube: KubeClient) -> AsyncIterator[None]:
    await ensure_spec(kube, spec_body(SPEC, gpu=0, cpu="1m", memory="1Mi"))
    async with stock_pool(kube, POOL, STOCK_UNITS, specName=SPEC):
        yield


@pytest.fixture(autouse=True)
async def full_stock(kube: KubeClient) -> None:
    """A test takes two at once, and does not wait for what the one before it has taken."""
    await wait_pool_available(kube, POOL, STOCK_UNITS)


@pytest.fixture(scope="module")
async def replicas(
    cluster: RunningCluster, api: httpx.AsyncClient, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Sequence[httpx.AsyncClient]]:
    """Two API processes."""
    log: Path = tmp_path_factory.mktemp("api") / "second.log"
    async with (
        api_process(cluster.api_kubeconfig, log) as (_, url),
        open_api(url, cluster.record.api_key) as second,
    ):
        await wait_ready(second)
        yield (api, second)


@pytest.fixture
async def data(api: httpx.AsyncClient, kube: KubeClient) -> AsyncIterator[str]:
    await post_storage(api, "data")
    yield "data"
    await remove_storage(api, kube, "data")


def mounting(name: str, *storages: str, **fields: Any) -> Json:
    return rest_unit(name, specName=SPEC, storageMounts=build_mounts(*storages), **fields)


async def claimed_stock(kube: KubeClient) -> list[str]:
    return [stock["metadata"]["name"] for stock in await stock_of(kube, POOL) if is_claimed(stock)]


async def test_parity_23_a_storage_that_is_not_there_is_404_and_nothing_is_taken(
    api: httpx.AsyncClient, kube: KubeClient, data: str
) -> None:
    answer = await api.post(UNITS, json=mounting("lost", data, "missing"))
    assert (answer.status_code, code_of(answer)) == (404, "gpustorage_not_found")
    assert "'missing'" in answer.json()["error"]["message"]
    assert await claimed_stock(kube) == []
    assert (await get_storage_view(api, data))["mountedBy"] == []
    assert await find(kube, OPERATIONS.item(operation_name("default", "op-lost"), INSTANCES)) is None


async def test_parity_23_a_storage_that_is_mounted_elsewhere_is_409_and_names_the_unit(
    api: httpx.AsyncClient, kube: KubeClient, data: str
) -> None:
    created = await api.post(UNITS, json=mounting("first", data))
    assert created.status_code == 201, created.text
    assert created.json()["data"]["storageMounts"] == [{"name": data, "mountPath": "/mnt/data", "readOnly": False}]
    assert (await get_storage_view(api, data))["mountedBy"] == ["first"]
    refused = await api.post(UNITS, json=mounting("second", data))
    assert (refused.status_code, code_of(refused)) == (409, "storage_in_use")
    assert "'first'" in refused.json()["error"]["message"]
    # A replay of what was accepted is no second mount.
    assert (await api.post(UNITS, json=mounting("first", data))).status_code == 200
    await remove_unit(api, kube, "first")
    await wait_unmounted(api, data)


BAD_MOUNTS: dict[str, tuple[list[Json], str]] = {
    "a relative path": ([{"name": "data", "mountPath": "mnt"}], "storageMounts[0].mountPath"),
    "all of it": ([{"name": "data", "mountPath": "/"}], "storageMounts[0].mountPath"),
    "all of it in other words": ([{"name": "data", "mountPath": "/mnt/.."}], "storageMounts[0].mountPath"),
    "a path twice": (
        [{"name": "data", "mountPath": "/mnt"}, {"name": "more", "mountPath": "/mnt/"}],
        "storageMounts[1].mountPath",
    ),
    "a storage twice": (
        [{"name": "data", "mountPath": "/a"}, {"name": "data", "mountPath": "/b"}],
        "storageMounts[1].name",
    ),
    "no name": ([{"name": "Not_A_Name", "mountPath": "/a"}], "storageMounts[0].name"),
}


@pytest.mark.parametrize("problem", BAD_MOUNTS)
async def test_parity_23_a_mount_that_cannot_be_is_refused_by_field(api: httpx.AsyncClient, problem: str) -> None:
    wished, field = BAD_MOUNTS[problem]
    answer = await api.post(UNITS, json=rest_unit("bad-mount", specName=SPEC, storageMounts=wished))
    assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
    assert [detail["field"] for detail in answer.json()["error"]["details"]] == [field]


async def test_parity_46_a_mounted_storage_is_not_deleted_until_it_is_unmounted(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    await post_storage(api, "in-use")
    uid = (await kube.get(GPU_STORAGES.item("in-use", INSTANCES)))["metadata"]["uid"]
    assert (await api.post(UNITS, json=mounting("user", "in-use"))).status_code == 201
    refused = await api.delete(f"{STORAGES}/in-use")
    assert (refused.status_code, code_of(refused)) == (409, "storage_in_use")
    assert "'user'" in refused.json()["error"]["message"]
    # Nothing is left that would delete it later.
    assert await find(kube, OPERATIONS.item(delete_operation_name("default", uid), INSTANCES)) is None
    unmounted = await api.put(f"{UNITS}/user", json={"storageMounts": []})
    assert (unmounted.status_code, unmounted.json()["data"]["storageMounts"]) == (200, [])
    await wait_unmounted(api, "in-use")
    assert (await api.delete(f"{STORAGES}/in-use")).status_code == 204
    await remove_storage(api, kube, "in-use")
    await remove_unit(api, kube, "user")


async def test_parity_25_a_unit_that_goes_leaves_its_storage(
    api: httpx.AsyncClient, kube: KubeClient, data: str
) -> None:
    assert (await api.post(UNITS, json=mounting("short", data))).status_code == 201
    await remove_unit(api, kube, "short")
    await wait_unmounted(api, data)
    assert (await get_storage_view(api, data))["phase"] in ("Pending", "Ready")


async def test_a_change_mounts_what_is_free_and_nothing_else(
    api: httpx.AsyncClient, kube: KubeClient, data: str
) -> None:
    await post_storage(api, "more")
    for name in ("left", "right"):
        assert (await api.post(UNITS, json=rest_unit(name, specName=SPEC))).status_code == 201
    mounted = await api.put(f"{UNITS}/left", json={"storageMounts": build_mounts(data)})
    assert mounted.status_code == 200, mounted.text
    refused = await api.put(f"{UNITS}/right", json={"storageMounts": build_mounts(data, "more")})
    assert (refused.status_code, code_of(refused)) == (409, "storage_in_use")
    # All or none.
    assert (await get_storage_view(api, "more"))["mountedBy"] == []
    missing = await api.put(f"{UNITS}/right", json={"storageMounts": build_mounts("more", "missing")})
    assert (missing.status_code, code_of(missing)) == (404, "gpustorage_not_found")
    assert (await get_storage_view(api, "more"))["mountedBy"] == []
    both = await api.put(f"{UNITS}/left", json={"storageMounts": build_mounts(data, "more")})
    assert [mount["name"] for mount in both.json()["data"]["storageMounts"]] == [data, "more"]
    unchanged = await api.put(f"{UNITS}/left", json={"image": "example/other"})
    assert unchanged.json()["data"]["storageMounts"] == both.json()["data"]["storageMounts"]
    # A stopped unit keeps what it mounts.
    assert (await api.post(f"{UNITS}/left/stop")).status_code == 200
    assert (await get_storage_view(api, data))["mountedBy"] == ["left"]
    for name in ("left", "right"):
        await remove_unit(api, kube, name)
    await remove_storage(api, kube, "more")
    await wait_unmounted(api, data)


async def test_a_unit_for_which_there_is_no_stock_gives_its_storages_back(
    api: httpx.AsyncClient, kube: KubeClient, data: str
) -> None:
    await ensure_spec(kube, spec_body("mounts.none", gpu=0))
    answer = await api.post(UNITS, json=mounting("none", data) | {"specName": "mounts.none"})
    assert (answer.status_code, code_of(answer)) == (409, "insufficient_capacity")
    assert (await get_storage_view(api, data))["mountedBy"] == []


@pytest.mark.parametrize("rounds", [1, pytest.param(12, marks=pytest.mark.faults)])
async def test_of_two_units_that_mount_one_storage_at_once_exactly_one_does(
    replicas: Sequence[httpx.AsyncClient], kube: KubeClient, data: str, faults: FaultReport, rounds: int
) -> None:
    first, second = replicas
    for number in range(rounds):
        await wait_pool_available(kube, POOL, STOCK_UNITS)
        contenders = (f"left-{number}", f"right-{number}")
        answers = await asyncio.gather(
            *(api.post(UNITS, json=mounting(name, data)) for api, name in zip(replicas, contenders, strict=True))
        )
        assert sorted(answer.status_code for answer in answers) == [201, 409], [answer.text for answer in answers]
        [winner] = [answer.json()["data"]["name"] for answer in answers if answer.status_code == 201]
        [loser] = [answer for answer in answers if answer.status_code == 409]
        assert code_of(loser) == "storage_in_use"
        assert (await get_storage_view(first, data))["mountedBy"] == [winner]
        [lost] = [name for name in contenders if name != winner]
        assert (await second.get(f"{UNITS}/{lost}")).status_code == 404
        faults.hit("two units at once")
        faults.held("a storage has one unit")
        await remove_unit(first, kube, winner)
        await wait_unmounted(first, data)


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.faults)])
async def test_of_two_changes_that_mount_one_storage_at_once_exactly_one_does(
    replicas: Sequence[httpx.AsyncClient], kube: KubeClient, data: str, faults: FaultReport, rounds: int
) -> None:
    """Each round waits for a pod that still has the storage."""
    first, _ = replicas
    for name in ("one", "two"):
        assert (await first.post(UNITS, json=rest_unit(name, specName=SPEC))).status_code == 201
    for _ in range(rounds):
        answers = await asyncio.gather(
            *(
                api.put(f"{UNITS}/{name}", json={"storageMounts": build_mounts(data)})
                for api, name in zip(replicas, ("one", "two"), strict=True)
            )
        )
        assert sorted(answer.status_code for answer in answers) == [200, 409], [answer.text for answer in answers]
        [winner] = [answer.json()["data"]["name"] for answer in answers if answer.status_code == 200]
        assert (await get_storage_view(first, data))["mountedBy"] == [winner]
        assert (await first.put(f"{UNITS}/{winner}", json={"storageMounts": []})).status_code == 200
        await wait_unmounted(first, data)
        faults.hit("two changes at once")
        faults.held("a storage has one unit")
    for name in ("one", "two"):
        await remove_unit(first, kube, name)


@pytest.mark.parametrize("rounds", [2, pytest.param(16, marks=pytest.mark.faults)])
async def test_deleting_a_storage_while_a_unit_mounts_it_has_one_clear_outcome(
    replicas: Sequence[httpx.AsyncClient], kube: KubeClient, faults: FaultReport, rounds: int
) -> None:
    """Either the unit has it and the deletion is refused, or it goes and the unit is refused."""
    first, second = replicas
    for number in range(rounds):
        await wait_pool_available(kube, POOL, STOCK_UNITS)
        storage, unit = f"torn-{number}", f"torn-user-{number}"
        await post_storage(first, storage)
        uid = (await kube.get(GPU_STORAGES.item(storage, INSTANCES)))["metadata"]["uid"]
        requests = [
            first.post(UNITS, json=mounting(unit, storage)),
            # Later each time, so that it meets every step of the acceptance.
            _after(number * 0.01, second, f"{STORAGES}/{storage}"),
        ]
        created, deleted = await asyncio.gather(*requests)
        assert (created.status_code, deleted.status_code) in {(201, 409), (404, 204)}, (created.text, deleted.text)
        record = OPERATIONS.item(delete_operation_name("default", uid), INSTANCES)
        if created.status_code == 201:
            assert code_of(deleted) == "storage_in_use"
            assert await find(kube, record) is None
            assert (await get_storage_view(first, storage))["mountedBy"] == [unit]
            await remove_unit(first, kube, unit)
        else:
            assert code_of(created) == "gpustorage_not_found"
            assert await find(kube, GPU_UNITS.item(unit, INSTANCES)) is None
        faults.hit(f"a unit and a deletion at once: {created.status_code} and {deleted.status_code}")
        faults.held("either the unit has the storage or it goes")
        await remove_storage(first, kube, storage)


async def test_a_unit_that_takes_the_storage_between_the_record_and_the_deletion_wins(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    await post_storage(api, "contested")
    storage = await kube.get(GPU_STORAGES.item("contested", INSTANCES))
    held: list[Json] = []

    async def record(seen: Json) -> Json:
        opened = await open_operation(kube, build_deletion(seen, "default"))
        held.extend(await hold_storages(kube, INSTANCES, "faster", ["contested"], datetime.now(UTC)))
        return opened.operation

    with pytest.raises(StorageHeldError, match="unit/faster"):
        await delete_unused_storage(kube, storage, record)
    assert "deletionTimestamp" not in (await kube.get(GPU_STORAGES.item("contested", INSTANCES)))["metadata"]
    name = delete_operation_name("default", storage["metadata"]["uid"])
    assert await find(kube, OPERATIONS.item(name, INSTANCES)) is None
    await release_storages(kube, held)
    await remove_storage(api, kube, "contested")


async def test_a_deletion_is_not_held_up_by_whoever_else_writes_the_storage(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    await post_storage(api, "written")
    path = GPU_STORAGES.item("written", INSTANCES)
    looks: list[Json] = []

    async def record(seen: Json) -> Json:
        looks.append(seen)
        if len(looks) == 1:
            await kube.patch(path, {"metadata": {"annotations": {"example.com/note": "a stranger's"}}})
        return (await open_operation(kube, build_deletion(seen, "default"))).operation

    await delete_unused_storage(kube, await kube.get(path), record)
    assert len(looks) > 1

    async def is_gone() -> bool:
        return await find(kube, path) is None

    await eventually(is_gone)
    await remove_storage(api, kube, "written")


async def _after(seconds: float, api: httpx.AsyncClient, path: str) -> httpx.Response:
    await asyncio.sleep(seconds)
    return await api.delete(path)


async def test_the_command_line_deletes_a_storage_once_its_deleted_unit_has_released_it(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient
) -> None:
    await post_storage(api, "left")
    assert (await api.post(UNITS, json=mounting("leaver", "left"))).status_code == 201
    await kube.create(PODS.collection(INSTANCES), lingering_pod("leaver", "left"))
    await remove_unit(api, kube, "leaver")

    process = await asyncio.create_subprocess_exec(
        *(*PLATFORM, "storages", "delete", "left", "--wait"),
        env={**os.environ, "GPU_PLATFORM_URL": cluster.record.platform_url, "GPU_PLATFORM_KEY": cluster.record.api_key},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    assert "left: the storage 'left' is mounted by the unit 'leaver'" in (await process.stderr.readline()).decode()
    await kube.delete(PODS.item("lingers-leaver", INSTANCES))
    said, complaint = await process.communicate()

    assert process.returncode == 0, complaint
    assert said.decode() == "left is being deleted\nleft is gone\n"
    await delete_operations(kube, "left")
