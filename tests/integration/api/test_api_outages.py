"""The API while Kubernetes hangs or is away: it says so, keeps no caller waiting, and recovers by itself.

How soon it notices and gives up a call is held in virtual time by test_kube_health_client.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_UNITS
from tests.support.api import UNITS, api_process, code_of, open_api, probe, unit_request, wait_ready
from tests.support.clusters import RunningCluster
from tests.support.daemons import Daemon
from tests.support.fault_report import FaultReport
from tests.support.tcp_proxy import TcpProxy, write_kubeconfig_through
from tests.support.units_and_stock import (
    INSTANCES,
    create_unit,
    delete_unit,
    stock_of,
    stock_pool,
    unit_body,
    wait_unit_phase,
)
from tests.support.waiting import NotYet, eventually

HEALTH = "/api/v1/health"
CALLS = 50
MEMORY_GROWTH_LIMIT = 60 * 1_024 * 1_024
HANGS, IS_AWAY = "hangs", "is away"
FAULTS = pytest.mark.faults


@dataclass(frozen=True)
class Served:
    proxy: TcpProxy
    api: httpx.AsyncClient
    daemon: Daemon

    def break_it(self, outage: str) -> None:
        self.proxy.freeze() if outage == HANGS else self.proxy.refuse()

    def mend(self, *, forget: bool = False) -> None:
        self.proxy.thaw(forget=forget)

    def memory_bytes(self) -> int:
        [line] = [
            line
            for line in Path(f"/proc/{self.daemon.pid}/status").read_text().splitlines()
            if line.startswith("VmRSS:")
        ]
        return int(line.split()[1]) * 1_024

    def count_outages(self) -> int:
        """So far, as the process itself noticed them."""
        return sum(entry["message"] == "kubernetes.lost" for entry in self.daemon.entries())

    async def wait_lost(self, outages: int) -> None:
        async def is_noticed() -> bool:
            return self.count_outages() > outages

        await eventually(is_noticed)


@pytest.fixture(scope="module")
async def served(cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """An API process of its own, whose way to Kubernetes can be broken. Every test mends it."""
    directory = tmp_path_factory.mktemp("outages")
    async with TcpProxy(cluster.record.ports["kube-apiserver"]) as proxy:
        kubeconfig = write_kubeconfig_through(proxy, cluster.api_kubeconfig, directory / "kubeconfig")
        async with (
            api_process(kubeconfig, directory / "api.log") as (daemon, url),
            open_api(url, cluster.record.api_key, patience=0) as api,
        ):
            await wait_ready(api)
            yield Served(proxy, api, daemon)


async def is_unready(api: httpx.AsyncClient) -> str:
    answer = await probe(api, "/readyz")
    return answer.text if answer.status_code == 503 else ""


async def is_served(api: httpx.AsyncClient) -> bool | NotYet:
    ready, listed, health = await probe(api, "/readyz"), await api.get(UNITS), await api.get(HEALTH)
    view = health.json()["data"]
    is_connected = view["kubernetesConnected"] and "kubeError" not in view
    return (ready.status_code == listed.status_code == 200 and is_connected) or NotYet((ready.text, listed.text, view))


def mixed_calls(api: httpx.AsyncClient, count: int) -> list[Awaitable[httpx.Response]]:
    def call(number: int) -> Awaitable[httpx.Response]:
        name = f"outage-{number}"
        match number % 4:
            case 0:
                return api.get(f"{UNITS}/{name}")
            case 1:
                return api.get(UNITS)
            case 2:
                return api.post(UNITS, json=unit_request(name, specName="outage.none"))
        return api.put(f"{UNITS}/{name}", json={"image": "example/other"})

    return [call(number) for number in range(count)]


def assert_unavailable(answer: httpx.Response) -> None:
    assert (answer.status_code, code_of(answer)) == (503, "service_unavailable"), answer.text
    assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("outage", "crowds"),
    [(HANGS, 2), pytest.param(HANGS, 10, marks=FAULTS), pytest.param(IS_AWAY, 10, marks=FAULTS)],
)
async def test_while_kubernetes_is_lost_everybody_is_told(
    served: Served, outage: str, crowds: int, faults: FaultReport
) -> None:
    api = served.api
    # So that the connections of the calls are there already.
    await asyncio.gather(*(api.get(UNITS) for _ in range(CALLS)))
    memory_before = served.memory_bytes()
    outages = served.count_outages()
    served.break_it(outage)
    first = asyncio.gather(*mixed_calls(api, CALLS))
    assert (await api.get(HEALTH)).status_code == 200
    for answer in await first:
        assert_unavailable(answer)
    await served.wait_lost(outages)
    faults.hit(f"Kubernetes {outage}")
    assert "Kubernetes does not answer" in await eventually(lambda: is_unready(api))

    health = await api.get(HEALTH)
    view = health.json()["data"]
    assert (view["kubernetesConnected"], bool(view["kubeError"]), bool(view["degraded"])) == (False, True, True)
    assert (await probe(api, "/healthz")).status_code == 200

    connections = served.proxy.accepted
    for _ in range(crowds):
        for answer in await asyncio.gather(*mixed_calls(api, CALLS)):
            assert_unavailable(answer)
    # No request reached Kubernetes; only the check whether it is back is sent, every second, however long this took.
    assert served.proxy.accepted - connections < crowds * CALLS / 2
    assert served.memory_bytes() - memory_before < MEMORY_GROWTH_LIMIT

    served.mend()
    await eventually(partial(is_served, api))
    faults.held("every caller is answered", "no caller waits for Kubernetes", "the API recovers by itself")


async def test_a_watch_that_cannot_list_is_refused_before_it_begins(served: Served) -> None:
    """The list of a hanging API server is given up after the moment for which a silent stream is waited for."""
    served.break_it(HANGS)
    try:
        async with served.api.stream("GET", UNITS, params={"watch": "true"}) as answer:
            await answer.aread()
            assert_unavailable(answer)
            assert "Kubernetes does not answer" in answer.json()["error"]["message"]
    finally:
        served.mend()
    await wait_ready(served.api)


async def units_of_operation(kube: KubeClient, operation_id: str) -> list[Json]:
    found = (await kube.get(GPU_UNITS.collection(INSTANCES)))["items"]
    return [
        unit
        for unit in found
        if (unit["metadata"].get("annotations") or {}).get(names.ANNOTATION_OPERATION_ID) == operation_id
    ]


@pytest.mark.parametrize("outage", [IS_AWAY, pytest.param(HANGS, marks=FAULTS)])
async def test_a_request_that_an_outage_met_ends_with_exactly_one_unit(
    kube: KubeClient, served: Served, outage: str, faults: FaultReport
) -> None:
    """The caller repeats it until there is an answer; the operationID makes that harmless."""
    names_of_units = [f"{outage.replace(' ', '-')}-{number}" for number in range(6)]
    async with stock_pool(kube, "outage", len(names_of_units), replenish="Never"):
        refused: set[str] = set()
        served_units = asyncio.gather(
            *(insist(served.api, name, refused, after=index * 0.02) for index, name in enumerate(names_of_units))
        )
        await asyncio.sleep(0.05)
        outages = served.count_outages()
        served.break_it(outage)
        await served.wait_lost(outages)

        async def some_are_refused() -> bool:
            """The last caller came after the outage began."""
            return names_of_units[-1] in refused

        await eventually(some_are_refused)
        faults.hit("requests met by an outage", len(refused))
        served.mend()
        answers = await served_units
        assert {answer.status_code for answer in answers} <= {200, 201}
        for name in names_of_units:
            await wait_unit_phase(kube, name, "Ready")
            assert len(await units_of_operation(kube, f"op-{name}")) == 1
        sources = [answer.json()["data"]["sourceStockName"] for answer in answers]
        assert len(set(sources)) == len(names_of_units)

        async def nothing_is_left() -> bool:
            return not await stock_of(kube, "outage")

        await eventually(nothing_is_left)
        faults.held("one unit per operation", "one stock unit per unit")
        for name in names_of_units:
            await delete_unit(kube, name)


async def insist(api: httpx.AsyncClient, name: str, refused: set[str], after: float) -> httpx.Response:
    await asyncio.sleep(after)

    async def answered() -> httpx.Response | NotYet:
        answer = await api.post(UNITS, json=unit_request(name))
        if answer.status_code != 503:
            return answer
        refused.add(name)
        return NotYet(answer.text)

    return await eventually(answered, every=1)


async def test_a_change_that_an_outage_met_is_made_once_it_is_over(kube: KubeClient, served: Served) -> None:
    await create_unit(kube, unit_body("changed", running=False))
    await wait_unit_phase(kube, "changed", "Stopped")
    served.break_it(HANGS)
    assert_unavailable(await served.api.put(f"{UNITS}/changed", json={"image": "example/new"}))
    served.mend()

    async def change() -> httpx.Response | NotYet:
        answer = await served.api.put(f"{UNITS}/changed", json={"image": "example/new"})
        return answer if answer.status_code != 503 else NotYet(answer.text)

    answer = await eventually(change)
    assert (answer.status_code, answer.json()["data"]["image"]) == (200, "example/new")
    await delete_unit(kube, "changed")


async def test_connections_that_died_silently_are_given_up(served: Served) -> None:
    """As behind a router that has lost its state: the old ones never answer again, and say nothing of it."""
    api = served.api
    outages = served.count_outages()
    served.break_it(HANGS)
    await served.wait_lost(outages)
    served.mend(forget=True)

    async def all_are_answered() -> bool | NotYet:
        answers = await asyncio.gather(*(api.get(UNITS) for _ in range(20)))
        return all(answer.status_code == 200 for answer in answers) or NotYet(answers)

    await eventually(all_are_answered)
