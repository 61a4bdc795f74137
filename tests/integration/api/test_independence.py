"""The API and the reconciler are two processes; neither needs the other for its own work, nor its own memory."""

import os
import signal

import httpx
import pytest

from gpu_platform.domain.names import child_name
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import DEPLOYMENTS
from tests.support.api import UNITS, code_of, wait_ready
from tests.support.cluster_processes import frozen, pid_of
from tests.support.clusters import RunningCluster
from tests.support.units_and_stock import INSTANCES, ensure_spec, find, stock_pool, wait_pool_available
from tests.support.units_api import (
    SPEC,
    delete_operations,
    post_ready_unit,
    remove_unit,
    rest_unit,
    spec_body,
    wait_unit_view,
)
from tests.support.waiting import eventually


@pytest.fixture(scope="module", autouse=True)
async def spec(kube: KubeClient) -> None:
    await ensure_spec(kube, spec_body(SPEC))


async def test_parity_64_units_are_accepted_while_the_reconciler_sleeps(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient
) -> None:
    async with stock_pool(kube, "rest", 1, specName=SPEC):
        with frozen(cluster, "reconciler"):
            assert (await api.post(UNITS, json=rest_unit("early"))).status_code == 201
            assert (await api.get(f"{UNITS}/early")).json()["data"]["phase"] == "Pending"
            pending = (await api.get(UNITS, params={"phase": "Pending", "specName": SPEC})).json()["data"]
            assert [unit["name"] for unit in pending] == ["early"]
        await wait_unit_view(api, "early", "Ready")
        await remove_unit(api, kube, "early")


async def test_parity_64_units_are_kept_while_the_api_is_dead(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient
) -> None:
    path = DEPLOYMENTS.item(child_name("kept"), INSTANCES)
    async with stock_pool(kube, "rest", 1, specName=SPEC):
        await post_ready_unit(api, "kept")
        before = await kube.get(path)
        os.kill(pid_of(cluster, "api"), signal.SIGKILL)
        await kube.delete(path)

        async def is_back() -> bool:
            deployment = await find(kube, path)
            return deployment is not None and deployment["metadata"]["uid"] != before["metadata"]["uid"]

        await eventually(is_back)
        await wait_ready(api)
        await wait_unit_view(api, "kept", "Ready")
        await remove_unit(api, kube, "kept")


async def test_a_deleted_unit_stays_deleted_also_when_everything_was_restarted(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient
) -> None:
    async with stock_pool(kube, "rest", 1, specName=SPEC):
        await post_ready_unit(api, "once")
        assert (await api.delete(f"{UNITS}/once")).status_code == 204

        async def is_gone() -> bool:
            return (await api.get(f"{UNITS}/once")).status_code == 404

        await eventually(is_gone)
        for process in ("api", "reconciler"):
            os.kill(pid_of(cluster, process), signal.SIGKILL)
        await wait_ready(api)
        replay = await api.post(UNITS, json=rest_unit("once"))
        assert (replay.status_code, code_of(replay)) == (409, "operation_conflict")
        assert "deleted" in replay.json()["error"]["message"]
        assert await is_gone()
        await wait_pool_available(kube, "rest", 1)
        await delete_operations(kube, "once")
