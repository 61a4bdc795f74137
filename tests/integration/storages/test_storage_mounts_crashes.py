"""API processes that die while a unit takes its storages, or one is deleted or prepared anew: finished or undone."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import operation_name
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_STORAGES, OPERATIONS
from tests.support.api import UNITS, api_process, open_api, wait_ready
from tests.support.clusters import RunningCluster
from tests.support.fault_report import FaultReport
from tests.support.storages import (
    STORAGES,
    build_mounts,
    get_storage_view,
    post_storage,
    remove_storage,
    wait_unmounted,
)
from tests.support.units_and_stock import INSTANCES, ensure_spec, find, stock_pool, wait_pool_available
from tests.support.units_api import remove_unit, rest_unit, spec_body
from tests.support.waiting import eventually

SPEC = "dying-mounts.0"
POOL = "dying-mounts"
STOCK_UNITS = 3


@pytest.fixture(scope="module", autouse=True)
async def stock(kube: KubeClient) -> AsyncIterator[None]:
    await ensure_spec(kube, spec_body(SPEC, gpu=0, cpu="1m", memory="1Mi"))
    async with stock_pool(kube, POOL, STOCK_UNITS, specName=SPEC):
        yield


@pytest.fixture
async def data(api: httpx.AsyncClient, kube: KubeClient) -> AsyncIterator[str]:
    await post_storage(api, "precious")
    yield "precious"
    await remove_storage(api, kube, "precious")


def mounting(name: str, *storages: str) -> Json:
    return rest_unit(name, specName=SPEC, storageMounts=build_mounts(*storages))


async def send_to_one_that_dies(
    cluster: RunningCluster,
    log: Path,
    faults: FaultReport,
    moment: str,
    method: str,
    path: str,
    body: Json | None = None,
) -> None:
    async with (
        api_process(cluster.api_kubeconfig, log, fault=moment) as (daemon, url),
        open_api(url, cluster.record.api_key) as dying,
    ):
        await wait_ready(dying)
        with pytest.raises(httpx.TransportError):
            await dying.request(method, path, json=body)
        assert await daemon.ends() == -9
        faults.hit(moment)


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("api.stock-claimed", marks=pytest.mark.faults),
        "unit.storages-held",
        pytest.param("api.unit-created", marks=pytest.mark.faults),
    ],
)
async def test_an_acceptance_that_dies_between_claim_hold_and_unit_is_finished(
    cluster: RunningCluster,
    kube: KubeClient,
    api: httpx.AsyncClient,
    data: str,
    tmp_path: Path,
    faults: FaultReport,
    moment: str,
) -> None:
    await wait_pool_available(kube, POOL, STOCK_UNITS)
    body = mounting("survivor", data)
    await send_to_one_that_dies(cluster, tmp_path / "dying.log", faults, moment, "POST", UNITS, body)
    record = OPERATIONS.item(operation_name("default", "op-survivor"), INSTANCES)

    async def is_finished() -> bool:
        return bool((await kube.get(record)).get("status", {}).get("phase") == "Succeeded")

    await eventually(is_finished)
    assert (await get_storage_view(api, data))["mountedBy"] == ["survivor"]
    assert (await api.post(UNITS, json=body)).status_code == 200
    faults.held("the accepted unit is there and has its storage", "a replay is the same unit")
    await remove_unit(api, kube, "survivor")
    await wait_unmounted(api, data)


@pytest.mark.faults
async def test_an_acceptance_that_dies_and_whose_storage_was_taken_meanwhile_is_undone(
    cluster: RunningCluster,
    kube: KubeClient,
    api: httpx.AsyncClient,
    data: str,
    tmp_path: Path,
    faults: FaultReport,
) -> None:
    await wait_pool_available(kube, POOL, STOCK_UNITS)
    body = mounting("too-late", data)
    await send_to_one_that_dies(cluster, tmp_path / "dying.log", faults, "api.stock-claimed", "POST", UNITS, body)
    assert (await api.post(UNITS, json=mounting("in-time", data))).status_code == 201
    record = OPERATIONS.item(operation_name("default", "op-too-late"), INSTANCES)

    async def is_undone() -> bool:
        return await find(kube, record) is None

    await eventually(is_undone)
    assert (await api.get(f"{UNITS}/too-late")).status_code == 404
    assert (await get_storage_view(api, data))["mountedBy"] == ["in-time"]
    await wait_pool_available(kube, POOL, STOCK_UNITS)
    faults.held("a storage has one unit", "nothing is left of what was not accepted", "no stock is lost")
    await remove_unit(api, kube, "in-time")
    await wait_unmounted(api, data)


@pytest.mark.faults
async def test_a_deletion_that_dies_after_its_record_is_carried_out(
    cluster: RunningCluster, kube: KubeClient, api: httpx.AsyncClient, tmp_path: Path, faults: FaultReport
) -> None:
    path = f"{STORAGES}/leaving"
    await post_storage(api, "leaving")
    await send_to_one_that_dies(cluster, tmp_path / "dying.log", faults, "storage.delete-recorded", "DELETE", path)

    async def is_gone() -> bool:
        return (await api.get(path)).status_code == 404

    await eventually(is_gone)
    faults.held("a recorded deletion is carried out")
    await remove_storage(api, kube, "leaving")


@pytest.mark.faults
async def test_a_recovery_that_dies_is_finished_or_forgotten(
    cluster: RunningCluster, kube: KubeClient, api: httpx.AsyncClient, tmp_path: Path, faults: FaultReport
) -> None:
    prepare = {"fromImage": "none", "command": ["sh", "-c", f"test -e {tmp_path / 'repaired'}"]}
    await post_storage(api, "fragile", prepare=prepare)

    async def has_failed() -> bool:
        return bool((await get_storage_view(api, "fragile"))["prepareStatus"]["phase"] == "Failed")

    await eventually(has_failed)
    again = {"operationID": "op-recovery"}
    path = f"{STORAGES}/fragile/recover"
    record = OPERATIONS.item(operation_name("default", "op-recovery"), INSTANCES)
    await send_to_one_that_dies(cluster, tmp_path / "one.log", faults, "api.recovery-recorded", "POST", path, again)

    async def is_forgotten() -> bool:
        return await find(kube, record) is None

    await eventually(is_forgotten)
    assert (
        names.ANNOTATION_RECOVERY_NONCE
        not in (await kube.get(GPU_STORAGES.item("fragile", INSTANCES)))["metadata"]["annotations"]
    )
    (tmp_path / "repaired").touch()
    await send_to_one_that_dies(cluster, tmp_path / "two.log", faults, "api.recovery-told", "POST", path, again)

    async def is_finished() -> bool:
        return bool((await kube.get(record)).get("status", {}).get("phase") == "Succeeded")

    await eventually(is_finished)
    assert (await api.post(path, json=again)).status_code == 200

    async def is_ready() -> bool:
        return bool((await get_storage_view(api, "fragile"))["phase"] == "Ready")

    await eventually(is_ready)
    faults.held("a recovery that was not told is forgotten", "one that was told is finished")
    await remove_storage(api, kube, "fragile")
