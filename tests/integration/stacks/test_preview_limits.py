"""Previews cost a Pulumi process each: who may ask for them, how many wait, and whose turn it is."""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import operation_name
from gpu_platform.domain.tenant_limits import TenantLimits
from gpu_platform.domain.tenants import Role
from gpu_platform.domain.units import GPUUnitSpec, accepted_text
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_UNITS, OPERATIONS
from tests.support.api import UNITS, code_of
from tests.support.clusters import RunningCluster
from tests.support.stack_workers import StackPlace, cleared_worker
from tests.support.tenants import Tenant, key_of, tenant
from tests.support.units_and_stock import create_unit, find, unit_body
from tests.support.waiting import NotYet, eventually

LIMIT = TenantLimits().previews


@pytest.fixture
async def editors(cluster: RunningCluster, kube: KubeClient) -> AsyncIterator[tuple[Tenant, Tenant]]:
    """Two tenants; a worker that takes what it lists in order comes to the first one's objects first."""
    url = cluster.record.platform_url
    async with tenant(kube, url, Role.EDITOR) as one, tenant(kube, url, Role.EDITOR) as other:
        first, second = sorted((one, other), key=lambda each: each.namespace)
        yield first, second


async def make_stopped_unit(kube: KubeClient, owner: Tenant) -> str:
    """A unit with a stack, that takes no stock."""
    name = f"looked-{secrets.token_hex(3)}"
    body = unit_body(name, namespace=owner.namespace, running=False)
    accepted = accepted_text(GPUUnitSpec.model_validate(body["spec"]))
    body["metadata"]["annotations"] = {names.ANNOTATION_ACCEPTED_SPEC: accepted}
    await create_unit(kube, body)
    return name


async def delete_units(kube: KubeClient, owner: Tenant, units: list[str]) -> None:
    for name in units:
        await kube.delete(GPU_UNITS.item(name, owner.namespace))

    async def are_gone() -> bool | NotYet:
        left = [name for name in units if await find(kube, GPU_UNITS.item(name, owner.namespace))]
        return not left or NotYet(left)

    await eventually(are_gone)


async def ask(api: httpx.AsyncClient, unit: str, operation_id: str | None = None) -> httpx.Response:
    return await api.post(f"{UNITS}/{unit}/preview", json={"operationID": operation_id} if operation_id else None)


async def list_previews(kube: KubeClient, owner: Tenant) -> list[Json]:
    found: list[Json] = (await kube.get(OPERATIONS.collection(owner.namespace)))["items"]
    return [each for each in found if each["spec"]["kind"] == "PreviewUnit"]


async def test_a_viewer_queues_no_preview_and_sees_an_editors(
    cluster: RunningCluster, kube: KubeClient, editors: tuple[Tenant, Tenant]
) -> None:
    owner, _ = editors
    unit = await make_stopped_unit(kube, owner)
    async with key_of(kube, cluster.record.platform_url, owner.name, Role.VIEWER) as (viewer, _):
        refused = await asyncio.gather(*(ask(viewer, unit) for _ in range(30)))
        assert {(answer.status_code, code_of(answer)) for answer in refused} == {(403, "forbidden")}
        assert await list_previews(kube, owner) == []

        asked = await ask(owner.api, unit)
        assert asked.status_code == 202
        preview = asked.json()["data"]
        shown = await viewer.get(f"{UNITS}/{unit}/previews/{preview['operationID']}")
        assert (shown.status_code, shown.json()["data"]) == (200, preview)


async def test_a_crowd_of_requests_for_one_unit_is_one_preview(
    kube: KubeClient, editors: tuple[Tenant, Tenant]
) -> None:
    owner, _ = editors
    unit = await make_stopped_unit(kube, owner)
    answers = await asyncio.gather(*(ask(owner.api, unit) for _ in range(60)))
    assert Counter(answer.status_code for answer in answers) == {202: 1, 200: 59}
    [running] = {answer.json()["data"]["operationID"] for answer in answers}

    named = await asyncio.gather(*(ask(owner.api, unit, f"more-{number}") for number in range(10)))
    assert {(answer.status_code, code_of(answer)) for answer in named} == {(409, "operation_conflict")}
    assert all(repr(running) in answer.json()["error"]["message"] for answer in named)
    assert len(await list_previews(kube, owner)) == 1

    path = OPERATIONS.item(operation_name(owner.name, running), owner.namespace, "status")
    await kube.patch(path, {"status": {"phase": "Failed", "reason": "Test"}})
    # At once, before the API's cache may know: the end of the first was seen by its caller.
    assert (await ask(owner.api, unit, "next")).status_code == 202


async def test_a_tenant_that_queues_all_it_may_keeps_no_other_tenant_waiting(
    cluster: RunningCluster, kube: KubeClient, editors: tuple[Tenant, Tenant], tmp_path: Path
) -> None:
    crowd, other = editors
    units = [await make_stopped_unit(kube, crowd) for _ in range(LIMIT + 5)]
    answers = await asyncio.gather(*(ask(crowd.api, unit) for unit in units))
    assert Counter(answer.status_code for answer in answers) == {202: LIMIT, 429: 5}
    assert len(await list_previews(kube, crowd)) == LIMIT
    [refused, *_] = [answer for answer in answers if answer.status_code == 429]
    assert f"{LIMIT} previews" in refused.json()["error"]["message"]
    assert refused.headers["Retry-After"] == "2"
    # Without its units Pulumi is not run for the crowd: what counts is whose turn it is.
    await delete_units(kube, crowd, units)

    unit = await make_stopped_unit(kube, other)
    asked = await ask(other.api, unit)
    assert asked.status_code == 202, asked.text
    mine = operation_name(other.name, asked.json()["data"]["operationID"])
    theirs = {each["metadata"]["name"] for each in await list_previews(kube, crowd)}
    async with cleared_worker(cluster, kube, StackPlace(tmp_path), PARALLEL="1") as worker:

        async def finished() -> list[str] | NotYet:
            names_of_done = [each["operation"] for each in worker.entries() if each["message"] == "preview.done"]
            is_all = {mine, *theirs} <= set(names_of_done)
            return names_of_done if is_all else NotYet(len(names_of_done))

        order = await eventually(finished)
        await delete_units(kube, other, [unit])
    assert sum(name in theirs for name in order[: order.index(mine)]) <= 1
    # Those that have ended make place for others.
    again = await make_stopped_unit(kube, crowd)

    async def is_accepted() -> bool:
        return (await ask(crowd.api, again)).status_code == 202

    await eventually(is_accepted)
