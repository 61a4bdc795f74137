"""The API and the reconciler are two processes; neither needs the other for its own work, nor its own memory."""

import os
import signal

import httpx
import pytest

from gpu_platform.adapters.kube import KubeClient
from gpu_platform.adapters.kube.paths import DEPLOYMENTS
from gpu_platform.domain.names import child_name
from tests.integration.api import UNITS, code_of, wait_ready
from tests.integration.conftest import RunningCluster
from tests.integration.platform import INSTANCES, available_pool, ensure_spec, find, stock_pool
from tests.integration.processes import asleep, pid_of
from tests.integration.renting import SPEC, forget, give_back, in_phase, rent, spec_body, wish
from tests.waiting import eventually


@pytest.fixture(scope="module", autouse=True)
async def spec(kube: KubeClient) -> None:
    await ensure_spec(kube, spec_body(SPEC))


async def test_parity_64_units_are_accepted_while_the_reconciler_sleeps(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient
) -> None:
    async with stock_pool(kube, "rest", 1, specName=SPEC):
        with asleep(cluster, "reconciler"):
            assert (await api.post(UNITS, json=wish("early"))).status_code == 201
            assert (await api.get(f"{UNITS}/early")).json()["data"]["phase"] == "Pending"
            pending = (await api.get(UNITS, params={"phase": "Pending", "specName": SPEC})).json()["data"]
            assert [unit["name"] for unit in pending] == ["early"]
        await in_phase(api, "early", "Ready")
        await give_back(api, kube, "early")


async def test_parity_64_units_are_kept_while_the_api_is_dead(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient
) -> None:
    path = DEPLOYMENTS.item(child_name("kept"), INSTANCES)
    async with stock_pool(kube, "rest", 1, specName=SPEC):
        await rent(api, "kept")
        before = await kube.get(path)
        os.kill(pid_of(cluster, "api"), signal.SIGKILL)
        await kube.delete(path)

        async def is_back() -> bool:
            deployment = await find(kube, path)
            return deployment is not None and deployment["metadata"]["uid"] != before["metadata"]["uid"]

        await eventually(is_back)
        await wait_ready(api)
        await in_phase(api, "kept", "Ready")
        await give_back(api, kube, "kept")


async def test_a_deleted_unit_stays_deleted_also_when_everything_was_restarted(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient
) -> None:
    async with stock_pool(kube, "rest", 1, specName=SPEC):
        await rent(api, "once")
        assert (await api.delete(f"{UNITS}/once")).status_code == 204

        async def is_gone() -> bool:
            return (await api.get(f"{UNITS}/once")).status_code == 404

        await eventually(is_gone)
        for process in ("api", "reconciler"):
            os.kill(pid_of(cluster, process), signal.SIGKILL)
        await wait_ready(api)
        replay = await api.post(UNITS, json=wish("once"))
        assert (replay.status_code, code_of(replay)) == (409, "operation_conflict")
        assert "deleted" in replay.json()["error"]["message"]
        assert await is_gone()
        await available_pool(kube, "rest", 1)
        await forget(kube, "once")
