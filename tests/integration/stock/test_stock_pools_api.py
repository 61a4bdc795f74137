"""Stock pools over REST: made by a job, changed as they were seen, left alone when they belong to somebody else."""

import asyncio
import json
from typing import Any

import httpx

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stock import default_pool_name
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import STOCK_POOLS
from tests.support.api import code_of
from tests.support.audit_log import AuditLog
from tests.support.clusters import RunningCluster
from tests.support.operator_api import JOBS, POOLS, new_operation, seed_request, wait_job
from tests.support.units_and_stock import STOCK, find, stock_of, wait_pool_available
from tests.support.waiting import eventually


async def create_pool(api: httpx.AsyncClient, operation_id: str, **fields: Any) -> str:
    """A pool without stock, unless the fields say otherwise; its name."""
    answer = await api.post(POOLS, json=seed_request(operation_id, replicas=0) | fields)
    assert answer.status_code == 202, answer.text
    job = await wait_job(api, operation_id)
    assert (job["type"], job["status"]) == ("create_stock_pool", "succeeded")
    name: str = job["objectName"]
    return name


async def test_a_pool_is_made_filled_shown_and_taken_away(api: httpx.AsyncClient, kube: KubeClient) -> None:
    async with new_operation(kube) as operation_id:
        name = await create_pool(api, operation_id, name=f"p-{operation_id}", replicas=2, namespace=STOCK)
        assert name == f"p-{operation_id}"
        await wait_pool_available(kube, name, 2)

        shown = await api.get(f"{POOLS}/{name}")
        pool = shown.json()["data"]
        assert (pool["specName"], pool["replicas"], pool["replenish"], pool["available"]) == ("g1.1", 2, "Always", 2)
        assert (pool["phase"], pool["reason"], pool["namespace"]) == ("Ready", "DeploymentReady", STOCK)
        stored = await kube.get(STOCK_POOLS.item(name, STOCK))
        assert shown.headers["ETag"] == f'"{stored["metadata"]["uid"]}.1"'
        listed = (await api.get(POOLS)).json()["data"]
        assert [each["replicas"] for each in listed if each["name"] == name] == [2]

        assert (await api.delete(f"{POOLS}/{name}")).status_code == 204

        async def is_gone() -> bool:
            return (await api.get(f"{POOLS}/{name}")).status_code == 404

        await eventually(is_gone)
        assert await stock_of(kube, name) == []


async def test_a_pool_without_a_name_gets_one_that_a_retry_finds(api: httpx.AsyncClient, kube: KubeClient) -> None:
    async with new_operation(kube) as operation_id:
        name = await create_pool(api, operation_id)

        again = await api.post(POOLS, json=seed_request(operation_id, replicas=0, name=name, replenish="Always"))

        assert name == default_pool_name("g1.1", operation_id)
        assert (again.status_code, again.json()["data"]["objectName"]) == (200, name)


async def test_a_name_that_is_taken_is_a_conflict_and_nothing_is_recorded(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    async with new_operation(kube) as operation_id, new_operation(kube) as second:
        name = await create_pool(api, operation_id)

        answer = await api.post(POOLS, json=seed_request(second, replicas=1, name=name))

        assert (answer.status_code, code_of(answer)) == (409, "operation_conflict")
        assert (await api.get(f"{JOBS}/{second}")).status_code == 404


async def test_a_change_is_written_with_what_was_accepted(api: httpx.AsyncClient, kube: KubeClient) -> None:
    async with new_operation(kube) as operation_id:
        name = await create_pool(api, operation_id)

        answer = await api.put(f"{POOLS}/{name}", json={"replicas": 1, "replenish": "Never", "image": "example/idle"})

        pool = answer.json()["data"]
        assert (answer.status_code, pool["generation"]) == (200, 2)
        assert (pool["replicas"], pool["replenish"], pool["image"]) == (1, "Never", "example/idle")
        stored = await kube.get(STOCK_POOLS.item(name, STOCK))
        accepted = json.loads(stored["metadata"]["annotations"][names.ANNOTATION_ACCEPTED_SPEC])
        assert accepted == stored["spec"]
        await wait_pool_available(kube, name, 1)


async def test_a_change_that_changes_nothing_writes_nothing(
    api: httpx.AsyncClient, kube: KubeClient, cluster: RunningCluster
) -> None:
    async with new_operation(kube) as operation_id:
        name = await create_pool(api, operation_id)
        before = await api.get(f"{POOLS}/{name}")
        log = AuditLog.from_here(cluster.directory.audit_log)

        for change in ({}, {"replicas": 0}, {"replenish": "Always"}):
            answer = await api.put(f"{POOLS}/{name}", json=change)
            assert (answer.status_code, answer.headers["ETag"]) == (200, before.headers["ETag"])

        assert log.writes("gpu-platform-api") == []


async def test_a_stale_if_match_is_refused_and_a_fresh_one_is_not(api: httpx.AsyncClient, kube: KubeClient) -> None:
    async with new_operation(kube) as operation_id:
        name = await create_pool(api, operation_id)
        old = (await api.get(f"{POOLS}/{name}")).headers["ETag"]

        first = await api.put(f"{POOLS}/{name}", json={"image": "example/a"}, headers={"If-Match": old})
        second = await api.put(f"{POOLS}/{name}", json={"image": "example/b"}, headers={"If-Match": old})
        third = await api.put(
            f"{POOLS}/{name}", json={"image": "example/c"}, headers={"If-Match": first.headers["ETag"]}
        )

        assert (first.status_code, second.status_code, third.status_code) == (200, 412, 200)
        assert code_of(second) == "precondition_failed"
        assert third.json()["data"]["image"] == "example/c"


async def test_changes_of_different_fields_at_once_all_hold(api: httpx.AsyncClient, kube: KubeClient) -> None:
    async with new_operation(kube) as operation_id:
        name = await create_pool(api, operation_id)
        changes: list[Json] = [{"image": "example/a"}, {"replenish": "Never"}, {"replicas": 1}]

        answers = await asyncio.gather(*(api.put(f"{POOLS}/{name}", json=change) for change in changes))

        assert [answer.status_code for answer in answers] == [200, 200, 200]
        pool = (await api.get(f"{POOLS}/{name}")).json()["data"]
        assert (pool["image"], pool["replenish"], pool["replicas"]) == ("example/a", "Never", 1)


async def test_a_pool_of_a_pulumi_stack_is_changed_there_and_only_there(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    async with new_operation(kube) as operation_id:
        name = await create_pool(api, operation_id)
        path = STOCK_POOLS.item(name, STOCK)
        await kube.patch(path, {"metadata": {"annotations": {names.ANNOTATION_OWNER_STACK: "infra/dev"}}})

        changed = await api.put(f"{POOLS}/{name}", json={"replicas": 1})
        deleted = await api.delete(f"{POOLS}/{name}")

        for answer in (changed, deleted):
            assert (answer.status_code, code_of(answer)) == (409, "operation_conflict")
            assert "infra/dev" in answer.json()["error"]["message"]
        assert await find(kube, path) is not None
