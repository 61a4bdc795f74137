"""Stock over REST: what is asked for is recorded once, done once, and shown as it is."""

import asyncio
from datetime import datetime
from pathlib import Path

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import OperationKind, OperationSpec, OperationTarget, operation_name
from gpu_platform.domain.stock import seed_pool_name
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_SPECS, GPU_UNITS, OPERATIONS
from gpu_platform.store.ledger import build_operation
from tests.support.api import api_process, code_of, open_api, wait_ready
from tests.support.clusters import RunningCluster
from tests.support.operator_api import (
    JOBS,
    POOLS,
    STOCK_UNITS,
    new_id,
    new_operation,
    new_spec_name,
    remove,
    seed_request,
    wait_job,
)
from tests.support.units_and_stock import STOCK, claim, find, stock_of, stock_pool
from tests.support.waiting import eventually


async def test_parity_7_seeding_is_accepted_as_a_pending_job(api: httpx.AsyncClient, kube: KubeClient) -> None:
    async with new_operation(kube) as operation_id:
        answer = await api.post(STOCK_UNITS, json=seed_request(operation_id))

        job = answer.json()["data"]
        assert answer.status_code == 202
        assert (job["id"], job["operationID"]) == (operation_id, operation_id)
        assert (job["type"], job["status"]) == ("seed_stock_units", "pending")
        assert (job["objectName"], job["objectNamespace"]) == (seed_pool_name("g1.1", operation_id), STOCK)


async def test_parity_8_a_job_that_succeeded_has_made_exactly_so_many_units(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    async with new_operation(kube) as operation_id:
        await api.post(STOCK_UNITS, json=seed_request(operation_id, replicas=3))
        job = await wait_job(api, operation_id)
        assert job["status"] == "succeeded"
        assert datetime.fromisoformat(job["updatedAt"]) >= datetime.fromisoformat(job["createdAt"])

        pool = job["objectName"]
        stock = await stock_of(kube, pool)
        assert sorted(unit["metadata"]["name"] for unit in stock) == [f"{pool}-{ordinal}" for ordinal in range(3)]
        assert {(unit["spec"]["memory"], unit["spec"]["gpu"]) for unit in stock} == {("16Gi", 1)}


async def test_parity_9_the_same_request_again_is_the_same_job(api: httpx.AsyncClient, kube: KubeClient) -> None:
    async with new_operation(kube) as operation_id:
        request = seed_request(operation_id, replicas=2)
        first = await api.post(STOCK_UNITS, json=request)
        await wait_job(api, operation_id)

        again = await api.post(STOCK_UNITS, json=dict(reversed(request.items())))

        assert (first.status_code, again.status_code) == (202, 200)
        assert again.json()["data"]["id"] == operation_id
        assert again.json()["data"]["status"] == "succeeded"
        assert len(await stock_of(kube, first.json()["data"]["objectName"])) == 2


async def test_the_same_request_many_times_at_once_is_accepted_once(api: httpx.AsyncClient, kube: KubeClient) -> None:
    async with new_operation(kube) as operation_id:
        request = seed_request(operation_id)

        answers = await asyncio.gather(*(api.post(STOCK_UNITS, json=request) for _ in range(10)))

        assert sorted(answer.status_code for answer in answers) == [200] * 9 + [202]


async def test_parity_10_the_same_operation_with_another_payload_is_a_conflict(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    async with new_operation(kube) as operation_id:
        await api.post(STOCK_UNITS, json=seed_request(operation_id))
        await wait_job(api, operation_id)
        others = (
            (STOCK_UNITS, seed_request(operation_id, replicas=2)),
            (STOCK_UNITS, seed_request(operation_id, specName="nowhere")),
            (POOLS, seed_request(operation_id)),
        )

        for path, request in others:
            answer = await api.post(path, json=request)
            assert (answer.status_code, code_of(answer)) == (409, "operation_conflict")
            assert operation_id in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"operationID": ""}, "operationID"),
        ({"specName": ""}, "specName"),
        ({"replicas": 0}, "replicas"),
        ({"gpu": -1}, "gpu"),
        ({"memory": "plenty"}, "memory"),
        ({"surprise": 1}, "surprise"),
    ],
)
async def test_parity_11_a_wrong_field_is_named_and_nothing_is_recorded(
    api: httpx.AsyncClient, change: Json, field: str
) -> None:
    operation_id = new_id()

    answer = await api.post(STOCK_UNITS, json=seed_request(operation_id) | change)

    assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
    assert [detail["field"] for detail in answer.json()["error"]["details"]] == [field]
    assert (await api.get(f"{JOBS}/{operation_id}")).status_code == 404


async def test_parity_13_an_unknown_job_is_not_found(api: httpx.AsyncClient) -> None:
    for operation_id in (new_id(), "with/slash", "with space", "%2e%2e", "%3F"):
        answer = await api.get(f"{JOBS}/{operation_id}")
        assert (answer.status_code, code_of(answer)) == (404, "job_not_found")


async def test_parity_13_another_process_knows_the_job_too(
    api: httpx.AsyncClient, kube: KubeClient, cluster: RunningCluster, tmp_path: Path
) -> None:
    async with new_operation(kube) as operation_id:
        await api.post(STOCK_UNITS, json=seed_request(operation_id))
        job = await wait_job(api, operation_id)

        async with (
            api_process(cluster.api_kubeconfig, tmp_path / "api.log") as (_, url),
            open_api(url, cluster.record.api_key) as other,
        ):
            await wait_ready(other)
            assert (await other.get(f"{JOBS}/{operation_id}")).json()["data"] == job


async def test_a_unit_operation_is_no_job(api: httpx.AsyncClient, kube: KubeClient) -> None:
    operation_id = new_id()
    spec = OperationSpec(
        operation_id=operation_id,
        kind=OperationKind.DELETE_UNIT,
        request_hash="0" * 64,
        target=OperationTarget(kind="GPUUnit", namespace=STOCK, name="nothing", uid="none"),
    )
    operation = build_operation(operation_name("", operation_id), STOCK, spec)
    await kube.create(OPERATIONS.collection(STOCK), operation)
    try:
        assert (await api.get(f"{JOBS}/{operation_id}")).status_code == 404
        assert operation_id not in [job["id"] for job in (await api.get(JOBS)).json()["data"]]
    finally:
        await remove(kube, OPERATIONS.item(operation["metadata"]["name"], STOCK))


async def test_jobs_are_listed_newest_first(api: httpx.AsyncClient, kube: KubeClient) -> None:
    async with new_operation(kube) as older, new_operation(kube) as newer:
        for operation_id in (older, newer):
            await api.post(POOLS, json=seed_request(operation_id, replicas=0))
            await wait_job(api, operation_id)

        jobs = (await api.get(JOBS)).json()["data"]

        assert {older, newer} <= {job["id"] for job in jobs}
        created = [job["createdAt"] for job in jobs]
        assert created == sorted(created, reverse=True)


async def test_a_new_spec_needs_its_size_and_comes_with_it(api: httpx.AsyncClient, kube: KubeClient) -> None:
    async with new_spec_name(kube) as spec, new_operation(kube) as operation_id:
        refused = await api.post(STOCK_UNITS, json=seed_request(operation_id, specName=spec))
        assert (refused.status_code, code_of(refused)) == (400, "invalid_request")
        assert [detail["field"] for detail in refused.json()["error"]["details"]] == ["memory", "gpu"]
        assert (await api.get(f"{JOBS}/{operation_id}")).status_code == 404

        # Nothing was accepted, so the same operationID may say more.
        accepted = await api.post(STOCK_UNITS, json=seed_request(operation_id, specName=spec, memory="1Gi", gpu=1))
        assert accepted.status_code == 202
        assert (await wait_job(api, operation_id))["status"] == "succeeded"
        made = await kube.get(GPU_SPECS.item(spec))
        assert (made["spec"]["memory"], made["spec"]["gpu"]) == ("1Gi", 1)


@pytest.mark.parametrize(("size", "field"), [({"memory": "1Gi"}, "memory"), ({"gpu": 4}, "gpu")])
async def test_a_known_spec_keeps_its_size(api: httpx.AsyncClient, size: Json, field: str) -> None:
    operation_id = new_id()

    answer = await api.post(STOCK_UNITS, json=seed_request(operation_id, **size))

    assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
    assert [detail["field"] for detail in answer.json()["error"]["details"]] == [field]
    assert (await api.get(f"{JOBS}/{operation_id}")).status_code == 404


async def test_stock_is_listed_by_spec_pool_and_state(api: httpx.AsyncClient, kube: KubeClient) -> None:
    pool = f"list-{new_id()}"
    async with stock_pool(kube, pool, 2, replenish="Never"):
        taken = await claim(kube, pool, "somebody")

        async def shown() -> list[Json] | None:
            stock: list[Json] = (await api.get(STOCK_UNITS, params={"pool": pool, "state": "claimed"})).json()["data"]
            return stock

        [claimed] = await eventually(shown)
        assert claimed["name"] == taken["metadata"]["name"]
        assert claimed["claimedBy"] == names.claim_holder(names.DEFAULT_INSTANCE_NAMESPACE, "somebody")
        available = await api.get(STOCK_UNITS, params={"pool": pool, "specName": "g1.1", "state": "available"})
        assert claimed["name"] not in [unit["name"] for unit in available.json()["data"]]
        assert {unit["lifecycle"] for unit in available.json()["data"]} == {"stock"}
        nothing = await api.get(STOCK_UNITS, params={"pool": pool, "specName": "host.1"})
        assert nothing.json()["data"] == []

    answer = await api.get(STOCK_UNITS, params={"state": "sold"})
    assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
    assert answer.json()["error"]["details"][0]["field"] == "state"


async def test_free_stock_can_be_deleted_and_claimed_stock_cannot(api: httpx.AsyncClient, kube: KubeClient) -> None:
    pool = f"drop-{new_id()}"
    async with stock_pool(kube, pool, 2, replenish="Never"):
        taken = await claim(kube, pool, "somebody")
        [free] = [unit for unit in await stock_of(kube, pool) if unit["metadata"]["uid"] != taken["metadata"]["uid"]]

        refused = await api.delete(f"{STOCK_UNITS}/{taken['metadata']['name']}")
        deleted = await api.delete(f"{STOCK_UNITS}/{free['metadata']['name']}")

        assert (refused.status_code, code_of(refused)) == (409, "operation_conflict")
        assert "somebody" in refused.json()["error"]["message"]
        assert (deleted.status_code, deleted.content) == (204, b"")

        async def is_gone() -> bool:
            return await find(kube, GPU_UNITS.item(free["metadata"]["name"], STOCK)) is None

        await eventually(is_gone)
        again = await api.delete(f"{STOCK_UNITS}/{free['metadata']['name']}")
        assert (again.status_code, code_of(again)) == (404, "stockunit_not_found")
        assert await find(kube, GPU_UNITS.item(taken["metadata"]["name"], STOCK)) is not None


@pytest.mark.parametrize("name", ["nothing", "%2e%2e", "%3Fwatch=true", "UPPER", "a" * 300])
async def test_what_is_not_there_is_not_found_whatever_its_name(api: httpx.AsyncClient, name: str) -> None:
    assert code_of(await api.delete(f"{STOCK_UNITS}/{name}")) == "stockunit_not_found"
    assert code_of(await api.get(f"{POOLS}/{name}")) == "stockpool_not_found"
    assert code_of(await api.put(f"{POOLS}/{name}", json={})) == "stockpool_not_found"
    assert code_of(await api.delete(f"{POOLS}/{name}")) == "stockpool_not_found"
