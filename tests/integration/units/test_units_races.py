"""Many callers at once, over two API processes: nothing is claimed twice or lost, each gets one clear answer.

`make test` sends a few, `make faults` a crowd.
"""

import asyncio
import itertools
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_UNITS, OPERATIONS, STOCK_POOLS
from tests.support.api import UNITS, api_process, code_of, open_api, unit_request, wait_ready
from tests.support.clusters import RunningCluster
from tests.support.fault_report import FaultReport
from tests.support.tenants import Tenant, tenant, wait_key_known
from tests.support.units_and_stock import STOCK, ensure_spec, stock_pool, wait_pool_available
from tests.support.units_api import spec_body
from tests.support.waiting import NotYet, eventually

FAULTS = pytest.mark.faults
SPEC = "race.0"
"""Without GPUs: a hundred units must find a place."""


@pytest.fixture(scope="module")
async def racer(cluster: RunningCluster, kube: KubeClient) -> AsyncIterator[Tenant]:
    await ensure_spec(kube, spec_body(SPEC, gpu=0, cpu="1m", memory="1Mi"))
    async with tenant(kube, cluster.record.platform_url, Role.EDITOR) as racer:
        yield racer


@pytest.fixture(scope="module")
def namespace_of_tenant(racer: Tenant) -> str:
    return racer.namespace


@pytest.fixture(scope="module")
async def replicas(
    cluster: RunningCluster, racer: Tenant, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Sequence[httpx.AsyncClient]]:
    """Two API processes."""
    log: Path = tmp_path_factory.mktemp("api") / "second.log"
    async with api_process(cluster.api_kubeconfig, log) as (_, url), open_api(url, racer.key) as second:
        await wait_ready(second)
        await wait_key_known(second)
        yield (racer.api, second)


async def together(requests: Sequence[Awaitable[httpx.Response]]) -> list[httpx.Response]:
    return list(await asyncio.gather(*requests))


async def units_of(kube: KubeClient, namespace: str) -> list[Json]:
    return list((await kube.get(GPU_UNITS.collection(namespace)))["items"])


async def clear(kube: KubeClient, namespace: str) -> None:
    for path in (GPU_UNITS, OPERATIONS):
        await kube.delete(path.collection(namespace), timeout=60)

    async def is_empty() -> bool | NotYet:
        left = await units_of(kube, namespace)
        return not left or NotYet(f"{len(left)} units")

    await eventually(is_empty)


@pytest.mark.parametrize(("stock", "callers"), [(3, 12), pytest.param(10, 64, marks=FAULTS)])
async def test_every_stock_unit_makes_one_unit_whatever_the_crowd(
    replicas: Sequence[httpx.AsyncClient],
    kube: KubeClient,
    namespace_of_tenant: str,
    stock: int,
    callers: int,
    faults: FaultReport,
) -> None:
    async with stock_pool(kube, "race-never", stock, specName=SPEC, replenish="Never"):
        turns = itertools.cycle(replicas)
        answers = await together(
            [next(turns).post(UNITS, json=unit_request(f"crowd-{number}", specName=SPEC)) for number in range(callers)]
        )
        faults.hit("callers at once", callers)
        # 200, where the first try was answered with a 503 and finished in the background.
        served = [answer for answer in answers if answer.status_code in (200, 201)]
        refused = [answer for answer in answers if answer not in served]
        assert (len(served), len(refused)) == (stock, callers - stock), Counter(answer.text for answer in answers)
        assert {(answer.status_code, code_of(answer)) for answer in refused} == {(409, "insufficient_capacity")}
        assert len({answer.json()["data"]["sourceStockName"] for answer in served}) == stock
        assert len(await units_of(kube, namespace_of_tenant)) == stock
        faults.held("one unit per stock unit", "one clear answer for everybody")
        pool_path = STOCK_POOLS.item("race-never", STOCK)
        await kube.patch(pool_path, {"spec": {"replenish": "Always"}})
        await wait_pool_available(kube, "race-never", stock)
        await clear(kube, namespace_of_tenant)


@pytest.mark.parametrize("operations", [6, pytest.param(100, marks=FAULTS)])
async def test_one_operation_is_one_unit_whoever_sends_it_how_often(
    replicas: Sequence[httpx.AsyncClient],
    kube: KubeClient,
    namespace_of_tenant: str,
    operations: int,
    faults: FaultReport,
) -> None:
    """8 senders each, one in ten with another payload."""
    async with stock_pool(kube, "race-many", operations + operations // 10, specName=SPEC, replenish="Never"):
        turns = itertools.cycle(replicas)
        at_once = asyncio.Semaphore(8)

        async def send(number: int, sender: int) -> tuple[int, str, httpx.Response]:
            image = "example/other" if (number + sender) % 10 == 0 else "example/train"
            body = unit_request(f"storm-{number}", specName=SPEC, image=image)
            return number, image, await next(turns).post(UNITS, json=body)

        async def storm(number: int) -> list[tuple[int, str, httpx.Response]]:
            async with at_once:
                return await asyncio.gather(*[send(number, sender) for sender in range(8)])

        answers = itertools.chain(*await asyncio.gather(*[storm(number) for number in range(operations)]))
        faults.hit("senders of one operation", operations * 8)
        by_number: dict[int, list[tuple[str, httpx.Response]]] = defaultdict(list)
        for number, image, answer in answers:
            by_number[number].append((image, answer))
        for group in by_number.values():
            won = {image for image, answer in group if answer.status_code in (200, 201)}
            assert len(won) == 1, Counter(answer.text for _, answer in group)
            # None, where the first try was answered with a 503 and finished in the background.
            assert [answer.status_code for _, answer in group].count(201) <= 1
            sources = {
                answer.json()["data"]["sourceStockName"] for _, answer in group if answer.status_code in (200, 201)
            }
            assert len(sources) == 1
            refused = [(image, answer) for image, answer in group if answer.status_code not in (200, 201)]
            wrong = [
                answer.text for image, answer in refused if {image} == won or code_of(answer) != "operation_conflict"
            ]
            assert not wrong, (won, wrong)
        units = await units_of(kube, namespace_of_tenant)
        assert len(units) == operations
        sources_of_units = {unit["metadata"]["annotations"][names.ANNOTATION_SOURCE_STOCK_NAME] for unit in units}
        assert len(sources_of_units) == operations
        faults.held("one unit per operation", "one stock unit per unit")
        await clear(kube, namespace_of_tenant)


@pytest.mark.parametrize("races", [2, pytest.param(10, marks=FAULTS)])
async def test_two_changes_at_once_are_both_made_one_after_the_other(
    replicas: Sequence[httpx.AsyncClient], kube: KubeClient, namespace_of_tenant: str, races: int, faults: FaultReport
) -> None:
    first, second = replicas
    async with stock_pool(kube, "race-put", 1, specName=SPEC):
        await first.post(UNITS, json=unit_request("contested", specName=SPEC))
        path = f"{UNITS}/contested"
        for attempt in range(races):
            image, command = f"example/{attempt}", {"command": ["run", str(attempt)]}
            answers = await together(
                [first.put(path, json={"image": image}), second.put(path, json={"template": command})]
            )
            assert [answer.status_code for answer in answers] == [200, 200]
            view = (await first.get(path)).json()["data"]
            assert (view["image"], view["template"]["command"]) == (image, command["command"])
            faults.hit("changes at once")
        etag = (await first.get(path)).headers["ETag"]
        guarded = [
            api.put(path, json={"image": f"example/guarded-{number}"}, headers={"If-Match": etag})
            for number, api in enumerate(replicas)
        ]
        assert sorted(answer.status_code for answer in await together(guarded)) == [200, 412]
        faults.held("no change is lost", "If-Match lets one of two pass")
        await clear(kube, namespace_of_tenant)


@pytest.mark.parametrize("races", [1, pytest.param(5, marks=FAULTS)])
async def test_stop_racing_with_start_ends_in_one_of_the_two(
    replicas: Sequence[httpx.AsyncClient], kube: KubeClient, namespace_of_tenant: str, races: int, faults: FaultReport
) -> None:
    first, second = replicas
    async with stock_pool(kube, "race-start", 4, specName=SPEC):
        await first.post(UNITS, json=unit_request("torn", specName=SPEC))
        path = f"{UNITS}/torn"
        for _ in range(races):
            await first.post(f"{path}/stop")
            answers = await together(
                [first.post(f"{path}/start"), second.post(f"{path}/stop"), second.post(f"{path}/start")]
            )
            # A start that lost gave its stock back, which takes a moment to be ready again.
            refused = [answer for answer in answers if answer.status_code != 200]
            codes = {code_of(answer) for answer in refused}
            assert codes <= {"insufficient_capacity", "operation_in_progress"}, refused

            async def is_settled() -> bool:
                shown = (await first.get(path)).json()["data"]
                wanted = "Ready" if shown["running"] else "Stopped"
                return bool(shown["phase"] == wanted and shown["observedGeneration"] == shown["generation"])

            await eventually(is_settled)
            faults.hit("stop and starts at once")
        await first.post(f"{path}/start")
        # No claim is left behind by the starts that lost.
        await wait_pool_available(kube, "race-start", 4)
        faults.held("stopped or started, nothing between", "no claim is left behind")
        await clear(kube, namespace_of_tenant)


@pytest.mark.parametrize("races", [2, pytest.param(8, marks=FAULTS)])
async def test_a_deleted_unit_stays_deleted_however_the_requests_race(
    replicas: Sequence[httpx.AsyncClient], kube: KubeClient, namespace_of_tenant: str, races: int, faults: FaultReport
) -> None:
    first, second = replicas
    async with stock_pool(kube, "race-delete", 4, specName=SPEC):
        for number in range(races):
            body = unit_request(f"brief-{number}", specName=SPEC)
            created, deleted = await together([first.post(UNITS, json=body), second.delete(f"{UNITS}/brief-{number}")])
            faults.hit("create and delete at once")
            # 200, where the first try was answered with a 503 and finished in the background.
            assert created.status_code in (200, 201, 409)
            assert deleted.status_code in (204, 404)
            if created.status_code == 409 and code_of(created) == "insufficient_capacity":
                continue
            # Deleted already, where the first try was answered with a 503 and finished in the background.
            assert created.status_code != 409 or code_of(created) == "operation_conflict", created.text
            assert (await second.delete(f"{UNITS}/brief-{number}")).status_code in (204, 404)

            async def is_gone(number: int = number) -> bool:
                return (await first.get(f"{UNITS}/brief-{number}")).status_code == 404

            await eventually(is_gone)
            replay = await second.post(UNITS, json=body)
            assert (replay.status_code, code_of(replay)) == (409, "operation_conflict")
            assert "deleted" in replay.json()["error"]["message"]
        assert not [unit for unit in await units_of(kube, namespace_of_tenant) if "brief" in unit["metadata"]["name"]]
        faults.held("what was deleted stays deleted")
        await clear(kube, namespace_of_tenant)
