"""Processes die in the middle of an acceptance: it is finished or undone without help, and a replay gives one unit.

When the reconciler takes over is decided by the plan of an operation: see test_operations_plan.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import operation_name
from gpu_platform.domain.stock import is_claimed
from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import OPERATIONS
from tests.support.api import UNITS, api_process, code_of, open_api, unit_request, wait_ready
from tests.support.cluster_processes import frozen
from tests.support.clusters import RunningCluster
from tests.support.daemons import running_daemon
from tests.support.fault_report import FaultReport
from tests.support.tcp_proxy import TcpProxy
from tests.support.tenants import Tenant, tenant, wait_key_known
from tests.support.units_and_stock import ensure_spec, find, stock_of, stock_pool, wait_pool_available
from tests.support.units_api import spec_body
from tests.support.waiting import NotYet, eventually

SPEC = "crash.0"
POOL = "crash"
STOCK_UNITS = 6
FAULTS = pytest.mark.faults
ONE_UNIT = "one unit per operation"
SETTLED = "no operation is open, no claim stands, the stock is full"


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


@pytest.fixture
def dying(cluster: RunningCluster, victim: Tenant, tmp_path: Path, faults: FaultReport) -> "Dying":
    return Dying(cluster, victim, tmp_path / "dying.log", faults)


@dataclass(frozen=True)
class Dying:
    cluster: RunningCluster
    victim: Tenant
    log: Path
    faults: FaultReport

    async def send(self, fault: str, method: str, path: str, body: Json | None = None) -> None:
        """To an API process that kills itself at the fault point; its caller gets no answer."""
        async with (
            api_process(self.cluster.api_kubeconfig, self.log, fault=fault) as (daemon, url),
            open_api(url, self.victim.key) as api,
        ):
            await wait_ready(api)
            await wait_key_known(api)
            with pytest.raises(httpx.TransportError):
                await api.request(method, path, json=body)
            assert await daemon.ends() == -9
        self.faults.hit(fault)


async def unfinished_operations(kube: KubeClient, namespace: str) -> list[str]:
    operations = (await kube.get(OPERATIONS.collection(namespace)))["items"]
    ended = ("Succeeded", "Failed")
    return [each["spec"]["kind"] for each in operations if each.get("status", {}).get("phase") not in ended]


async def wait_settled(kube: KubeClient, namespace: str) -> None:
    """No operation is open, no claim stands, the stock is full."""

    async def is_settled() -> bool | NotYet:
        claimed = [stock["metadata"]["name"] for stock in await stock_of(kube, POOL) if is_claimed(stock)]
        unfinished = await unfinished_operations(kube, namespace)
        return not (claimed or unfinished) or NotYet((claimed, unfinished))

    await eventually(is_settled, every=0.2)
    await wait_pool_available(kube, POOL, STOCK_UNITS)


async def replay(victim: Tenant, body: Json) -> Json:
    """Asked until it is answered with a unit."""

    async def answered() -> Json | None:
        answer = await victim.api.post(UNITS, json=body)
        assert answer.status_code in (200, 201, 503), answer.text
        return dict(answer.json()["data"]) if answer.status_code != 503 else None

    return await eventually(answered, every=0.2)


ACCEPTANCE = ("api.operation-created", "api.stock-claimed", "api.unit-created")
"""After its steps 2, 3 and 4."""


@pytest.mark.parametrize(
    "fault", [fault if fault == "api.stock-claimed" else pytest.param(fault, marks=FAULTS) for fault in ACCEPTANCE]
)
async def test_an_acceptance_that_dies_after_any_step_ends_with_one_unit_per_operation(
    kube: KubeClient, victim: Tenant, dying: Dying, fault: str
) -> None:
    """It is replayed at once, and again when all is settled."""
    body = unit_request(fault.removeprefix("api."), specName=SPEC)
    await dying.send(fault, "POST", UNITS, body)
    unit = await replay(victim, body)
    await wait_settled(kube, victim.namespace)
    again = (await victim.api.post(UNITS, json=body)).json()["data"]
    assert again["createdAt"] == unit["createdAt"]
    listed = (await victim.api.get(UNITS)).json()["data"]
    assert [each["name"] for each in listed] == [body["name"]]
    dying.faults.held(ONE_UNIT, SETTLED)
    await delete_unit_of(victim, body["name"])


@FAULTS
@pytest.mark.parametrize(("fault", "status"), list(zip(ACCEPTANCE, (404, 200, 200), strict=True)))
async def test_an_acceptance_that_nobody_replays_is_finished_or_undone_too(
    kube: KubeClient, victim: Tenant, dying: Dying, fault: str, status: int
) -> None:
    name = f"alone-{fault.removeprefix('api.')}"
    await dying.send(fault, "POST", UNITS, unit_request(name, specName=SPEC))
    await wait_settled(kube, victim.namespace)
    assert (await victim.api.get(f"{UNITS}/{name}")).status_code == status
    dying.faults.held(SETTLED)
    await delete_unit_of(victim, name)


async def delete_unit_of(victim: Tenant, name: str) -> None:
    async def is_gone() -> bool:
        return (await victim.api.delete(f"{UNITS}/{name}")).status_code == 404

    await eventually(is_gone)


@FAULTS
async def test_the_operations_controller_may_die_while_it_finishes_them(
    cluster: RunningCluster, kube: KubeClient, victim: Tenant, dying: Dying, tmp_path: Path
) -> None:
    """The cluster's own one sleeps; two others die, one after each of its two writes; then it goes on."""
    body = unit_request("finished-late", specName=SPEC)
    await dying.send("api.stock-claimed", "POST", UNITS, body)
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
                assert await daemon.ends() == -9
            dying.faults.hit(fault)
    await wait_settled(kube, victim.namespace)
    unit = await replay(victim, body)
    assert unit["name"] == "finished-late"
    dying.faults.held(ONE_UNIT, SETTLED)
    await delete_unit_of(victim, "finished-late")


@FAULTS
@pytest.mark.parametrize("fault", ["api.start-recorded", "api.start-claimed", "api.started"])
async def test_a_start_that_dies_is_finished_or_undone(
    kube: KubeClient, victim: Tenant, dying: Dying, fault: str
) -> None:
    unit = fault.removeprefix("api.")
    assert (await victim.api.post(UNITS, json=unit_request(unit, specName=SPEC))).status_code == 201
    assert (await victim.api.post(f"{UNITS}/{unit}/stop")).status_code == 200
    await dying.send(fault, "POST", f"{UNITS}/{unit}/start")
    await wait_settled(kube, victim.namespace)
    view = (await victim.api.get(f"{UNITS}/{unit}")).json()["data"]
    assert view["running"] is (fault != "api.start-recorded")
    dying.faults.held(SETTLED)
    await delete_unit_of(victim, unit)


@FAULTS
async def test_a_delete_that_dies_is_finished(kube: KubeClient, victim: Tenant, dying: Dying) -> None:
    body = unit_request("half-deleted", specName=SPEC)
    assert (await victim.api.post(UNITS, json=body)).status_code == 201
    path = f"{UNITS}/half-deleted"
    await dying.send("api.delete-recorded", "DELETE", path)

    async def is_gone() -> bool:
        return (await victim.api.get(path)).status_code == 404

    await eventually(is_gone)
    replayed = await victim.api.post(UNITS, json=body)
    assert replayed.status_code == 409
    await wait_settled(kube, victim.namespace)
    dying.faults.held("what was deleted stays deleted", SETTLED)


@FAULTS
async def test_a_unit_that_is_deleted_before_its_operation_was_marked_is_not_made_again(
    kube: KubeClient, victim: Tenant, dying: Dying
) -> None:
    body = unit_request("brief", specName=SPEC)
    await dying.send("api.unit-created", "POST", UNITS, body)
    assert (await victim.api.delete(f"{UNITS}/brief")).status_code == 204
    replayed = await victim.api.post(UNITS, json=body)
    assert replayed.status_code in (200, 409), replayed.text
    await wait_settled(kube, victim.namespace)
    operation = OPERATIONS.item(operation_name(victim.name, body["operationID"]), victim.namespace)

    async def is_done_with() -> bool | NotYet:
        """The controller sets an expiry when it looks at an operation at its end whose unit is gone."""
        found = await find(kube, operation)
        return "expiresAt" in (found or {}).get("status", {}) or NotYet(found)

    await eventually(is_done_with)
    assert (await victim.api.get(f"{UNITS}/brief")).status_code == 404
    again = await victim.api.post(UNITS, json=body)
    assert (again.status_code, code_of(again)) == (409, "operation_conflict")
    dying.faults.held("what was deleted stays deleted", SETTLED)


@pytest.mark.parametrize("cuts", [1, pytest.param(5, marks=FAULTS)])
async def test_a_lost_answer_never_claims_twice(
    cluster: RunningCluster, kube: KubeClient, victim: Tenant, cuts: int, faults: FaultReport
) -> None:
    port = httpx.URL(cluster.record.platform_url).port
    assert port is not None
    async with TcpProxy(port) as proxy:
        for number in range(cuts):
            body = unit_request(f"unheard-{cuts}-{number}", specName=SPEC)
            async with open_api(f"http://127.0.0.1:{proxy.port}", victim.key) as api:
                await api.get(UNITS)
                sending = asyncio.create_task(api.post(UNITS, json=body))
                await asyncio.sleep(0.004 * number)
                proxy.cut()
                # On a fast machine the answer may have come before; the first cut is always in time.
                try:
                    await sending
                except httpx.TransportError:
                    faults.hit("answer lost")
                else:
                    assert number > 0
            unit = await replay(victim, body)
            assert unit["name"] == body["name"]
            replayed = await replay(victim, body)
            assert replayed["sourceStockName"] == unit["sourceStockName"]
            await delete_unit_of(victim, body["name"])
    await wait_settled(kube, victim.namespace)
    listed = (await kube.get(OPERATIONS.collection(victim.namespace)))["items"]
    created = [each for each in listed if each["spec"]["target"]["name"].startswith(f"unheard-{cuts}")]
    assert {each["status"]["phase"] for each in created} == {"Succeeded"}
    assert names.ANNOTATION_CLAIMED_BY not in str(await stock_of(kube, POOL))
    faults.held(ONE_UNIT, SETTLED)
