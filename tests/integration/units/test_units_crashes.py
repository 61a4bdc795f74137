"""Processes die in the middle of an acceptance: within a minute it is finished or undone; a replay gives one unit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpu_platform.adapters.kube import KubeClient
from gpu_platform.adapters.kube.paths import OPERATIONS
from gpu_platform.domain import names
from gpu_platform.domain.operations import TAKEOVER
from gpu_platform.domain.stock import is_claimed
from gpu_platform.domain.tenants import Role
from tests.support.api import UNITS, api_process, code_of, open_api, unit_request, wait_ready
from tests.support.cluster_processes import frozen
from tests.support.clusters import RunningCluster
from tests.support.daemons import running_daemon
from tests.support.tcp_proxy import TcpProxy
from tests.support.tenants import Tenant, tenant, wait_key_known
from tests.support.units_and_stock import ensure_spec, stock_of, stock_pool, wait_pool_available
from tests.support.units_api import spec_body
from tests.support.waiting import eventually

Json = dict[str, Any]

SPEC = "crash.0"
POOL = "crash"
STOCK_UNITS = 6
SETTLED_WITHIN = 60.0


@pytest.fixture(scope="module")
async def victim(cluster: RunningCluster, kube: KubeClient) -> AsyncIterator[Tenant]:
    body = spec_body(SPEC)
    body["spec"] |= {"gpu": 0, "cpu": "1m", "memory": "1Mi"}
    await ensure_spec(kube, body)
    async with (
        stock_pool(kube, POOL, STOCK_UNITS, specName=SPEC),
        tenant(kube, cluster.record.platform_url, Role.EDITOR) as victim,
    ):
        yield victim


async def send_to_one_that_dies(
    cluster: RunningCluster, victim: Tenant, log: Path, fault: str, method: str, path: str, body: Json | None = None
) -> None:
    """The API process kills itself at the fault point; its caller gets no answer."""
    async with api_process(cluster.kubeconfig, log, fault=fault) as (daemon, url), open_api(url, victim.key) as api:
        await wait_ready(api)
        await wait_key_known(api)
        with pytest.raises(httpx.TransportError):
            await api.request(method, path, json=body)
        assert await daemon.ends() == -9


async def unfinished_operations(kube: KubeClient, namespace: str) -> list[str]:
    operations = (await kube.get(OPERATIONS.collection(namespace)))["items"]
    ended = ("Succeeded", "Failed")
    return [each["spec"]["kind"] for each in operations if each.get("status", {}).get("phase") not in ended]


async def wait_settled(kube: KubeClient, namespace: str) -> None:
    """No operation is open, no claim stands, the stock is full."""

    async def is_settled() -> bool:
        claimed = [stock for stock in await stock_of(kube, POOL) if is_claimed(stock)]
        return not claimed and not await unfinished_operations(kube, namespace)

    await eventually(is_settled, within=SETTLED_WITHIN, every=0.5)
    await wait_pool_available(kube, POOL, STOCK_UNITS)


async def replay(victim: Tenant, body: Json) -> Json:
    """Asked until it is answered with a unit."""

    async def answered() -> Json | None:
        answer = await victim.api.post(UNITS, json=body)
        assert answer.status_code in (200, 201, 503), answer.text
        return dict(answer.json()["data"]) if answer.status_code != 503 else None

    return await eventually(answered, within=SETTLED_WITHIN, every=0.5)


async def test_an_acceptance_that_dies_after_any_step_ends_with_one_unit_per_operation(
    cluster: RunningCluster, kube: KubeClient, victim: Tenant, tmp_path: Path
) -> None:
    """Steps 2, 3 and 4; each is replayed at once, and again when all is settled."""
    faults = ("api.operation-created", "api.stock-claimed", "api.unit-created")
    wishes = {fault: unit_request(fault.removeprefix("api."), specName=SPEC) for fault in faults}
    await asyncio.gather(
        *[
            send_to_one_that_dies(cluster, victim, tmp_path / f"{fault}.log", fault, "POST", UNITS, body)
            for fault, body in wishes.items()
        ]
    )
    units = await asyncio.gather(*[replay(victim, body) for body in wishes.values()])
    await wait_settled(kube, victim.namespace)
    again = [(await victim.api.post(UNITS, json=body)).json()["data"] for body in wishes.values()]
    assert [unit["createdAt"] for unit in again] == [unit["createdAt"] for unit in units]
    listed = (await victim.api.get(UNITS)).json()["data"]
    assert sorted(unit["name"] for unit in listed) == sorted(body["name"] for body in wishes.values())
    for unit in listed:
        assert (await victim.api.delete(f"{UNITS}/{unit['name']}")).status_code == 204


async def test_an_acceptance_that_nobody_replays_is_finished_or_undone_too(
    cluster: RunningCluster, kube: KubeClient, victim: Tenant, tmp_path: Path
) -> None:
    faults = {"api.operation-created": 404, "api.stock-claimed": 200, "api.unit-created": 200}
    wishes = {fault: unit_request(f"alone-{fault.removeprefix('api.')}", specName=SPEC) for fault in faults}
    await asyncio.gather(
        *[
            send_to_one_that_dies(cluster, victim, tmp_path / f"{fault}.log", fault, "POST", UNITS, body)
            for fault, body in wishes.items()
        ]
    )
    await wait_settled(kube, victim.namespace)
    for fault, status in faults.items():
        name = wishes[fault]["name"]
        assert (await victim.api.get(f"{UNITS}/{name}")).status_code == status, fault
        await victim.api.delete(f"{UNITS}/{name}")


async def test_the_operations_controller_may_die_while_it_finishes_them(
    cluster: RunningCluster, kube: KubeClient, victim: Tenant, tmp_path: Path
) -> None:
    """The cluster's own one sleeps; two others die, one after each of its two writes; then it goes on."""
    body = unit_request("finished-late", specName=SPEC)
    await send_to_one_that_dies(cluster, victim, tmp_path / "api.log", "api.stock-claimed", "POST", UNITS, body)
    with frozen(cluster, "reconciler"):
        for fault in ("operations.unit-created", "operations.finished"):
            settings = {
                "GPU_PLATFORM_RECONCILER_KUBECONFIG": str(cluster.kubeconfig),
                "GPU_PLATFORM_RECONCILER_CONTROLLERS": "operations",
                "GPU_PLATFORM_RECONCILER_LEADER_ELECT": "false",
                "GPU_PLATFORM_RECONCILER_PROBE_ADDRESS": "127.0.0.1:0",
                "GPU_PLATFORM_RECONCILER_METRICS_ADDRESS": "127.0.0.1:0",
                "GPU_PLATFORM_FAULT": fault,
            }
            async with running_daemon("reconciler", tmp_path / f"{fault}.log", settings) as daemon:
                assert await daemon.ends(within=90) == -9
    await wait_settled(kube, victim.namespace)
    unit = await replay(victim, body)
    assert unit["name"] == "finished-late"
    await victim.api.delete(f"{UNITS}/finished-late")


async def test_a_start_that_dies_is_finished_or_undone(
    cluster: RunningCluster, kube: KubeClient, victim: Tenant, tmp_path: Path
) -> None:
    faults = ("api.start-recorded", "api.start-claimed", "api.started")
    for fault in faults:
        unit = fault.removeprefix("api.")
        assert (await victim.api.post(UNITS, json=unit_request(unit, specName=SPEC))).status_code == 201
        assert (await victim.api.post(f"{UNITS}/{unit}/stop")).status_code == 200
    await asyncio.gather(
        *[
            send_to_one_that_dies(
                cluster,
                victim,
                tmp_path / f"{fault}.log",
                fault,
                "POST",
                f"{UNITS}/{fault.removeprefix('api.')}/start",
            )
            for fault in faults
        ]
    )
    await wait_settled(kube, victim.namespace)
    for fault in faults:
        name = fault.removeprefix("api.")
        view = (await victim.api.get(f"{UNITS}/{name}")).json()["data"]
        assert view["running"] is (fault != "api.start-recorded"), fault
        await victim.api.delete(f"{UNITS}/{name}")


async def test_a_delete_that_dies_is_finished(
    cluster: RunningCluster, kube: KubeClient, victim: Tenant, tmp_path: Path
) -> None:
    body = unit_request("half-deleted", specName=SPEC)
    assert (await victim.api.post(UNITS, json=body)).status_code == 201
    path = f"{UNITS}/half-deleted"
    await send_to_one_that_dies(cluster, victim, tmp_path / "api.log", "api.delete-recorded", "DELETE", path)

    async def is_gone() -> bool:
        return (await victim.api.get(path)).status_code == 404

    await eventually(is_gone, within=SETTLED_WITHIN)
    replayed = await victim.api.post(UNITS, json=body)
    assert replayed.status_code == 409
    await wait_settled(kube, victim.namespace)


async def test_a_unit_that_is_deleted_before_its_operation_was_marked_is_not_made_again(
    cluster: RunningCluster, kube: KubeClient, victim: Tenant, tmp_path: Path
) -> None:
    body = unit_request("brief", specName=SPEC)
    await send_to_one_that_dies(cluster, victim, tmp_path / "api.log", "api.unit-created", "POST", UNITS, body)
    assert (await victim.api.delete(f"{UNITS}/brief")).status_code == 204
    replayed = await victim.api.post(UNITS, json=body)
    assert replayed.status_code in (200, 409), replayed.text
    await wait_settled(kube, victim.namespace)
    await asyncio.sleep(TAKEOVER.total_seconds())
    assert (await victim.api.get(f"{UNITS}/brief")).status_code == 404
    again = await victim.api.post(UNITS, json=body)
    assert (again.status_code, code_of(again)) == (409, "operation_conflict")


async def test_a_lost_answer_never_claims_twice(cluster: RunningCluster, kube: KubeClient, victim: Tenant) -> None:
    port = httpx.URL(cluster.record.platform_url).port
    assert port is not None
    async with TcpProxy(port) as proxy:
        for number in range(5):
            body = unit_request(f"unheard-{number}", specName=SPEC)
            async with open_api(f"http://127.0.0.1:{proxy.port}", victim.key) as api:
                await api.get(UNITS)
                sending = asyncio.create_task(api.post(UNITS, json=body))
                await asyncio.sleep(0.004 * number)
                proxy.cut()
                # On a fast machine the answer may have come before; the first cut is always in time.
                with pytest.raises(httpx.TransportError) if number == 0 else suppress(httpx.TransportError):
                    await sending
            unit = await replay(victim, body)
            assert unit["name"] == body["name"]
            replayed = await replay(victim, body)
            assert replayed["sourceStockName"] == unit["sourceStockName"]
            await victim.api.delete(f"{UNITS}/{body['name']}")
    await wait_settled(kube, victim.namespace)
    listed = (await kube.get(OPERATIONS.collection(victim.namespace)))["items"]
    created = [each for each in listed if each["spec"]["target"]["name"].startswith("unheard")]
    assert {each["status"]["phase"] for each in created} == {"Succeeded"}
    assert names.ANNOTATION_CLAIMED_BY not in str(await stock_of(kube, POOL))
