"""Stacks over REST: their names at once, what is recorded of them, and what Pulumi would change."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import operation_name
from gpu_platform.domain.stacks import Recorded, StackRecord, accepted_hash
from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient, NotFoundError
from gpu_platform.kube.paths import GPU_UNITS, LEASES, OPERATIONS
from gpu_platform.store.stack_leases import Holder, release_lease, take_lease
from platform_api.gpu_units.acceptance import LANES
from tests.support.api import UNITS, code_of
from tests.support.cluster_processes import frozen
from tests.support.clusters import RunningCluster
from tests.support.operator_api import POOLS, new_operation, seed_request, wait_job
from tests.support.stack_workers import (
    StackPlace,
    clear_index,
    expect_stack_deleted,
    post_recorded,
    stack_worker,
    unit_stack,
)
from tests.support.tenants import tenant
from tests.support.units_and_stock import (
    INSTANCES,
    create_unit,
    delete_unit,
    ensure_spec,
    get_unit,
    stock_pool,
    unit_body,
    wait_pool_available,
)
from tests.support.units_api import SPEC, delete_operations, post_ready_unit, remove_unit, rest_unit, spec_body
from tests.support.waiting import eventually

NOBODY = Holder("elsewhere", 1, "test")


@pytest.fixture(scope="module", autouse=True)
async def stock(kube: KubeClient) -> AsyncIterator[None]:
    await ensure_spec(kube, spec_body(SPEC))
    async with stock_pool(kube, "shelved", 4, specName=SPEC):
        yield


@pytest.fixture(scope="module")
async def worker(
    cluster: RunningCluster, kube: KubeClient, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[None]:
    await clear_index(kube)
    async with stack_worker(cluster, StackPlace(tmp_path_factory.mktemp("stacks"))):
        yield
    await clear_index(kube)


@pytest.fixture
async def rented(api: httpx.AsyncClient, kube: KubeClient) -> AsyncIterator[str]:
    """A unit that nobody has recorded."""
    name = f"kept-{secrets.token_hex(3)}"
    await post_ready_unit(api, name)
    yield name
    await remove_unit(api, kube, name)


@pytest.fixture
async def recorded(api: httpx.AsyncClient, kube: KubeClient, worker: None) -> AsyncIterator[str]:  # noqa: ARG001
    """A unit that was recorded before its answer came."""
    name = f"said-{secrets.token_hex(3)}"
    await post_recorded(api, UNITS, rest_unit(name))
    yield name
    assert (await api.delete(f"{UNITS}/{name}")).status_code == 204
    await expect_stack_deleted(kube, unit_stack(name))
    await delete_operations(kube, name)


async def stack_of(api: httpx.AsyncClient, name: str) -> Json:
    answer = await api.get(f"{UNITS}/{name}/stack")
    assert answer.status_code == 200, answer.text
    stack: Json = answer.json()["data"]
    return stack


async def write_record(kube: KubeClient, name: str) -> None:
    """What a worker writes at the end."""
    unit = await get_unit(kube, name)
    text = unit["metadata"]["annotations"][names.ANNOTATION_ACCEPTED_SPEC]
    now = datetime.now(UTC)
    said = Recorded(text, "op", "hash", now, resources=1, outputs={"uid": unit["metadata"]["uid"]})
    record = StackRecord(unit_stack(name), unit["metadata"]["uid"], said)
    held = await take_lease(kube, None, record, NOBODY, 5, now)
    await release_lease(kube, held, record, now)


async def remove_record(kube: KubeClient, name: str) -> None:
    await kube.delete(LEASES.item(unit_stack(name).lease, names.SYSTEM_NAMESPACE))


async def ask_preview(api: httpx.AsyncClient, name: str, body: Json | None = None) -> Json:
    answer = await api.post(f"{UNITS}/{name}/preview", json=body)
    assert answer.status_code == 202, answer.text
    preview: Json = answer.json()["data"]
    return preview


async def previewed(api: httpx.AsyncClient, name: str) -> Json:
    asked = await ask_preview(api, name)

    async def ended() -> Json | None:
        preview: Json = (await api.get(f"{UNITS}/{name}/previews/{asked['operationID']}")).json()["data"]
        return preview if preview["phase"] in ("Succeeded", "Failed") else None

    return await eventually(ended)


# what needs no worker


async def test_a_unit_shows_its_stack_at_once_and_the_stack_that_nothing_is_recorded(
    api: httpx.AsyncClient, kube: KubeClient, rented: str
) -> None:
    full_name = f"gpu-unit/default.{rented}"
    assert (await api.get(f"{UNITS}/{rented}")).json()["data"]["stack"] == full_name
    text = (await get_unit(kube, rented))["metadata"]["annotations"][names.ANNOTATION_ACCEPTED_SPEC]
    nothing = {"name": full_name, "recorded": False, "acceptedHash": accepted_hash(text), "failures": 0}
    assert await stack_of(api, rented) == nothing


async def test_what_is_recorded_is_shown_until_something_else_is_accepted(
    api: httpx.AsyncClient, kube: KubeClient, rented: str
) -> None:
    await write_record(kube, rented)
    stack = await stack_of(api, rented)
    assert (stack["recorded"], stack["recordedHash"], stack["resources"]) == (True, stack["acceptedHash"], 1)
    assert stack["outputs"] == {"uid": (await get_unit(kube, rented))["metadata"]["uid"]}

    assert (await api.put(f"{UNITS}/{rented}", json={"image": "example/next"})).status_code == 200
    behind = await stack_of(api, rented)
    assert (behind["recorded"], behind["recordedHash"]) == (False, stack["recordedHash"])
    assert behind["acceptedHash"] != behind["recordedHash"]
    await remove_record(kube, rented)


async def test_a_unit_that_kubectl_made_or_another_stack_owns_has_none(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    owned = unit_body("shelf-owned", running=False)
    owned["metadata"]["annotations"] = {
        names.ANNOTATION_OWNER_STACK: "shop/prod",
        names.ANNOTATION_ACCEPTED_SPEC: '{"specName":"g1.1"}',
    }
    for body, why in ((unit_body("shelf-own", running=False), "kubectl"), (owned, "shop/prod")):
        name = (await create_unit(kube, body))["metadata"]["name"]
        for answer in (await api.get(f"{UNITS}/{name}/stack"), await api.post(f"{UNITS}/{name}/preview")):
            assert (answer.status_code, code_of(answer)) == (404, "stack_not_found")
            assert why in answer.json()["error"]["message"]
        assert "stack" not in (await api.get(f"{UNITS}/{name}")).json()["data"]
        await delete_unit(kube, name)


async def test_pools_and_their_jobs_show_the_pools_stack(api: httpx.AsyncClient, kube: KubeClient) -> None:
    async with new_operation(kube) as operation_id:
        asked = await api.post(POOLS, json=seed_request(operation_id, replicas=0, name=f"p-{operation_id}"))
        full_name = f"stock-pool/stock.p-{operation_id}"
        assert asked.json()["data"]["stack"] == full_name
        await wait_job(api, operation_id)
        pool = f"{POOLS}/p-{operation_id}"
        assert (await api.get(pool)).json()["data"]["stack"] == full_name
        stack = (await api.get(f"{pool}/stack")).json()["data"]
        assert (stack["name"], stack["recorded"]) == (full_name, False)
    assert code_of(await api.get(f"{POOLS}/missing/stack")) == "stockpool_not_found"
    made_by_kubectl = await api.get(f"{POOLS}/shelved/stack")
    assert (made_by_kubectl.status_code, code_of(made_by_kubectl)) == (404, "stack_not_found")


async def test_a_post_that_waits_is_answered_as_soon_as_its_stack_is_recorded(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    await wait_pool_available(kube, "shelved", 4)
    waiting = asyncio.create_task(api.post(UNITS, json=rest_unit("shelf-wait"), params={"wait": "recorded"}))
    await eventually(lambda: find_unit(kube, "shelf-wait"))
    assert not waiting.done()
    await write_record(kube, "shelf-wait")
    # How soon: the unit tests say it, in virtual time. An answer before it, or at the end of the time, has no true.
    answer = await waiting
    assert (answer.status_code, answer.json()["data"]["stackRecorded"]) == (201, True)
    again = await api.post(UNITS, json=rest_unit("shelf-wait"), params={"wait": "recorded"})
    assert (again.status_code, again.json()["data"]["stackRecorded"]) == (200, True)
    assert "stackRecorded" not in (await api.post(UNITS, json=rest_unit("shelf-wait"))).json()["data"]
    await remove_record(kube, "shelf-wait")
    await remove_unit(api, kube, "shelf-wait")


async def test_whoever_waits_for_a_stack_keeps_nobody_from_renting(api: httpx.AsyncClient, kube: KubeClient) -> None:
    await wait_pool_available(kube, "shelved", 4)
    await post_ready_unit(api, "shelf-held")
    waiting = [
        asyncio.create_task(api.post(UNITS, json=rest_unit("shelf-held"), params={"wait": "recorded"}))
        for _ in range(LANES + 4)
    ]
    # A later request is accepted later: then all of those wait.
    assert (await api.post(UNITS, json=rest_unit("shelf-held"))).status_code == 200
    assert (await api.post(UNITS, json=rest_unit("shelf-free"))).status_code == 201
    assert not any(task.done() for task in waiting)
    await write_record(kube, "shelf-held")
    assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}
    await remove_record(kube, "shelf-held")
    for name in ("shelf-held", "shelf-free"):
        await remove_unit(api, kube, name)


async def test_an_unknown_thing_to_wait_for_is_refused_and_nothing_is_made(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    answer = await api.post(UNITS, json=rest_unit("shelf-never"), params={"wait": "forever"})
    assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
    assert [detail["field"] for detail in answer.json()["error"]["details"]] == ["wait"]
    assert await find_unit(kube, "shelf-never") is None


async def find_unit(kube: KubeClient, name: str) -> Json | None:
    try:
        return await kube.get(GPU_UNITS.item(name, INSTANCES))
    except NotFoundError:
        return None


async def test_a_preview_is_a_job_that_a_replay_finds(api: httpx.AsyncClient, kube: KubeClient, rented: str) -> None:
    operation_id = f"ci/{rented} 7"
    asked = await ask_preview(api, rented, {"operationID": operation_id})
    assert (asked["operationID"], asked["unit"], asked["phase"]) == (operation_id, rented, "Pending")
    again = await api.post(f"{UNITS}/{rented}/preview", json={"operationID": operation_id})
    assert (again.status_code, again.json()["data"]) == (200, asked)
    assert (await api.get(f"{UNITS}/{rented}/previews/{operation_id}")).json()["data"] == asked

    operation = await kube.get(OPERATIONS.item(operation_name("default", operation_id), INSTANCES))
    uid = (await get_unit(kube, rented))["metadata"]["uid"]
    assert (operation["spec"]["kind"], operation["spec"]["target"]["uid"]) == ("PreviewUnit", uid)

    rented_with_it = await api.post(UNITS, json=rest_unit("shelf-used", operationID=operation_id))
    assert (rented_with_it.status_code, code_of(rented_with_it)) == (409, "operation_conflict")


async def test_an_operation_id_of_another_units_preview_is_a_conflict(
    api: httpx.AsyncClient, kube: KubeClient, rented: str
) -> None:
    await post_ready_unit(api, "shelf-other")
    await ask_preview(api, rented, {"operationID": f"of-{rented}"})
    answer = await api.post(f"{UNITS}/shelf-other/preview", json={"operationID": f"of-{rented}"})
    assert (answer.status_code, code_of(answer)) == (409, "operation_conflict")
    missing = await api.get(f"{UNITS}/shelf-other/previews/of-{rented}")
    assert (missing.status_code, code_of(missing)) == (404, "preview_not_found")
    await remove_unit(api, kube, "shelf-other")


async def test_a_wrong_body_of_a_preview_is_refused_and_none_is_needed(api: httpx.AsyncClient, rented: str) -> None:
    for body, field in (({"operationID": ""}, "operationID"), ({"depth": 1}, "depth")):
        answer = await api.post(f"{UNITS}/{rented}/preview", json=body)
        assert (answer.status_code, answer.json()["error"]["details"][0]["field"]) == (400, field)
    first, second = await ask_preview(api, rented), await api.post(f"{UNITS}/{rented}/preview", json={})
    assert (second.status_code, second.json()["data"]) == (200, first)


async def test_another_tenant_sees_neither_stack_nor_preview(
    api: httpx.AsyncClient, kube: KubeClient, cluster: RunningCluster, rented: str
) -> None:
    asked = await ask_preview(api, rented)
    async with tenant(kube, cluster.record.platform_url, Role.EDITOR) as other:
        unknown = [
            await other.api.get(f"{UNITS}/{rented}/stack"),
            await other.api.post(f"{UNITS}/{rented}/preview"),
            await other.api.get(f"{UNITS}/{rented}/previews/{asked['operationID']}"),
        ]
        assert (await other.api.get(f"{POOLS}/shelved/stack")).status_code == 403
    assert [answer.status_code for answer in unknown] == [404, 404, 404]
    assert [code_of(answer) for answer in unknown] == ["gpuunit_not_found", "gpuunit_not_found", "preview_not_found"]


async def test_an_old_preview_is_forgotten(api: httpx.AsyncClient, kube: KubeClient, rented: str) -> None:
    asked = await ask_preview(api, rented)
    path = OPERATIONS.item(operation_name("default", asked["operationID"]), INSTANCES, "status")
    ended = {"phase": "Succeeded", "result": {"changes": {"same": 1}}, "expiresAt": "2020-01-01T00:00:00Z"}
    await kube.patch(path, {"status": ended})

    async def is_forgotten() -> bool:
        answer = await api.get(f"{UNITS}/{rented}/previews/{asked['operationID']}")
        return answer.status_code == 404

    await eventually(is_forgotten)


# with a worker


async def test_a_preview_of_a_unit_as_it_was_accepted_shows_no_change(api: httpx.AsyncClient, recorded: str) -> None:
    preview = await previewed(api, recorded)
    assert preview["phase"] == "Succeeded", preview
    assert set(preview["changes"]) == {"same"}
    assert "finishedAt" in preview


async def test_a_preview_shows_what_somebody_changed_in_the_cluster_and_changes_nothing(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient, recorded: str
) -> None:
    path = GPU_UNITS.item(recorded, INSTANCES)
    accepted = (await get_unit(kube, recorded))["spec"]["image"]
    # Which would put it back at once.
    with frozen(cluster, "reconciler"):
        await kube.patch(path, {"spec": {"image": "example/edited"}})
        preview = await previewed(api, recorded)
        assert (await get_unit(kube, recorded))["spec"]["image"] == "example/edited"
    assert preview["phase"] == "Succeeded", preview
    [step] = [step for step in preview["steps"] if step["op"] != "same"]
    assert (step["op"], step["resource"]) == ("update", recorded)
    [change] = step["properties"]
    assert (change["path"], change["old"], change["new"]) == ("spec.image", "example/edited", accepted)

    async def is_put_back() -> bool:
        return bool((await get_unit(kube, recorded))["spec"]["image"] == accepted)

    await eventually(is_put_back)


async def test_a_recorded_stack_tells_its_outputs(api: httpx.AsyncClient, kube: KubeClient, recorded: str) -> None:
    stack = await stack_of(api, recorded)
    assert (stack["recorded"], stack["resources"]) == (True, 1)
    assert stack["outputs"]["uid"] == (await get_unit(kube, recorded))["metadata"]["uid"]
    assert stack["outputs"]["acceptedHash"] == stack["recordedHash"]
    assert "error" not in stack
