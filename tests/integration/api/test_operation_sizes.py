"""What operations keep in etcd: after their end a hash and the target, not the request; replays are answered alike."""

import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import yaml

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import operation_name
from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_FUNCTIONS, GPU_STORAGES, OPERATIONS, ResourcePath
from tests.support.api import UNITS, code_of
from tests.support.clusters import RunningCluster
from tests.support.functions import FUNCTIONS, build_function_request
from tests.support.storages import STORAGES
from tests.support.tenants import tenant
from tests.support.units_and_stock import INSTANCES, ensure_spec, find, stock_pool
from tests.support.units_api import SPEC, post_unit, remove_unit, rest_unit, spec_body
from tests.support.waiting import NotYet, eventually

LARGE = {"envs": [{"name": "PADDING", "value": "x" * 100_000}]}
FUNCTION_COUNT = 10
LARGEST_RECORD = 4_096

OLD_FORM: dict[str, Json] = yaml.safe_load(
    Path(__file__).parents[2].joinpath("support/operations_with_requests.yaml").read_text(encoding="utf-8")
)
OBJECTS: dict[str, tuple[str, ResourcePath]] = {
    "function": (FUNCTIONS, GPU_FUNCTIONS),
    "storage": (STORAGES, GPU_STORAGES),
}


@pytest.fixture(scope="module", autouse=True)
async def spec(kube: KubeClient) -> None:
    await ensure_spec(kube, spec_body(SPEC))


async def list_record_sizes(kube: KubeClient, namespace: str) -> list[int]:
    return [len(json.dumps(each)) for each in (await kube.get(OPERATIONS.collection(namespace)))["items"]]


async def test_large_functions_that_are_made_and_deleted_leave_small_records(
    kube: KubeClient, cluster: RunningCluster
) -> None:
    async with tenant(kube, cluster.record.platform_url, Role.EDITOR) as attacker:
        for number in range(FUNCTION_COUNT):
            body = build_function_request(f"large-{number}", template=LARGE)
            made = await attacker.api.post(FUNCTIONS, json=body)
            assert made.status_code == 201, made.text
            assert (await attacker.api.delete(f"{FUNCTIONS}/large-{number}")).status_code < 300

        sizes = await list_record_sizes(kube, attacker.namespace)
        assert len(sizes) == 2 * FUNCTION_COUNT
        assert max(sizes) < LARGEST_RECORD, sizes


async def test_the_record_of_a_large_unit_shrinks_at_its_end_and_replays_are_answered_alike(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    name = f"large-{secrets.token_hex(3)}"
    record = OPERATIONS.item(operation_name("default", rest_unit(name)["operationID"]), INSTANCES)

    async def is_small() -> bool | NotYet:
        size = len(json.dumps(await kube.get(record)))
        return size < LARGEST_RECORD or NotYet(size)

    async with stock_pool(kube, f"pool-{name}", 1, specName=SPEC):
        await post_unit(api, name, template=LARGE)
        await eventually(is_small)
        replay = await api.post(UNITS, json=rest_unit(name, template=LARGE))
        assert (replay.status_code, replay.json()["data"]["name"]) == (200, name)
        other = await api.post(UNITS, json=rest_unit(name))
        assert (other.status_code, code_of(other)) == (409, "operation_conflict")
        await remove_unit(api, kube, name)


@pytest.fixture(params=sorted(OBJECTS))
async def earlier(request: pytest.FixtureRequest, kube: KubeClient) -> AsyncIterator[str]:
    """An object and the Operation that made it, as they were stored before."""
    _, path = OBJECTS[request.param]
    old = OLD_FORM[request.param]
    made = await kube.create(path.collection(INSTANCES), old["object"])
    record = await record_ended(kube, old["operation"], made["metadata"]["uid"])
    yield request.param
    await kube.delete(path.item(made["metadata"]["name"], INSTANCES))
    await eventually(lambda: is_gone(kube, path.item(made["metadata"]["name"], INSTANCES)))
    await kube.delete(record)


async def record_ended(kube: KubeClient, operation: Json, uid: str) -> str:
    await kube.create(OPERATIONS.collection(INSTANCES), operation)
    path = OPERATIONS.item(operation["metadata"]["name"], INSTANCES)
    status = {"phase": "Succeeded", "finishedAt": "2026-11-01T00:00:00Z", "targetUid": uid}
    await kube.patch(f"{path}/status", {"status": status})
    return path


async def wait_trimmed(kube: KubeClient, operation: Json) -> None:
    path = OPERATIONS.item(operation["metadata"]["name"], INSTANCES)

    async def is_trimmed() -> bool | NotYet:
        spec = (await kube.get(path))["spec"]
        return spec == {**operation["spec"], "request": {}} or NotYet(spec)

    await eventually(is_trimmed)


async def is_gone(kube: KubeClient, path: str) -> bool:
    return await find(kube, path) is None


async def test_a_record_of_an_earlier_version_replays_with_its_request_and_without(
    api: httpx.AsyncClient, kube: KubeClient, earlier: str
) -> None:
    collection, path = OBJECTS[earlier]
    body, operation = OLD_FORM[earlier]["body"], OLD_FORM[earlier]["operation"]
    uid = (await kube.get(path.item(body["name"], INSTANCES)))["metadata"]["uid"]

    for _ in range(2):
        replay = await api.post(collection, json=body)
        assert (replay.status_code, replay.json()["data"]["operationID"]) == (200, body["operationID"])
        assert replay.headers["ETag"].startswith(f'"{uid}.')
        other = await api.post(collection, json={**body, "name": "another"})
        assert (other.status_code, code_of(other)) == (409, "operation_conflict")
        await wait_trimmed(kube, operation)


async def test_a_record_of_an_earlier_version_remembers_a_unit_that_is_gone(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    body, operation = OLD_FORM["unit"]["body"], OLD_FORM["unit"]["operation"]
    record = await record_ended(kube, operation, "a-uid-of-before")
    for _ in range(2):
        replay = await api.post(UNITS, json=body)
        assert "made the unit 'recorded-whole', which has been deleted" in replay.json()["error"]["message"]
        other = await api.post(UNITS, json={**body, "image": "example/other"})
        assert "was used for another request" in other.json()["error"]["message"]
        await wait_trimmed(kube, operation)
    await kube.delete(record)
