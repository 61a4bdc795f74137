"""Keys of tenants cannot act on the platform, and a namespace is one tenant's or none."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.tenants import DEFAULT_TENANT, PLATFORM_ROLES, Role
from gpu_platform.domain.units import GPUUnitSpec, accepted_text
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_FUNCTIONS, GPU_STORAGES, GPU_UNITS, NAMESPACES, PERSISTENT_VOLUME_CLAIMS
from tests.support.api import UNITS, add_key_record, api_process, code_of, open_api, remove_key, wait_ready
from tests.support.clusters import RunningCluster
from tests.support.functions import function_body
from tests.support.namespaces import create_namespace
from tests.support.storages import storage_body
from tests.support.tenants import wait_key_known
from tests.support.units_and_stock import INSTANCES, create_unit, find, get_unit, ready_condition, unit_body
from tests.support.waiting import NotYet, eventually

OPERATOR_ROUTES = (
    ("GET", "/api/v1/operator/stock-units"),
    ("GET", "/api/v1/operator/inventory"),
    ("GET", "/api/v1/operator/jobs"),
    ("GET", "/api/v1/operator/drift"),
    ("POST", "/api/v1/operator/stockpools"),
)
SECOND = "runtime-instance-default"


async def operator_statuses(api: httpx.AsyncClient) -> set[int]:
    """Of a body that is wrong a caller who is let in gets a 400."""
    answers = [
        await api.request(method, path, json={} if method == "POST" else None) for method, path in OPERATOR_ROUTES
    ]
    return {answer.status_code for answer in answers}


@pytest.mark.parametrize("role", sorted(PLATFORM_ROLES))
async def test_a_tenants_key_with_a_platform_role_does_not_reach_the_platform(
    cluster: RunningCluster, kube: KubeClient, role: Role
) -> None:
    key = await add_key_record(kube, DEFAULT_TENANT, (Role.VIEWER, role), is_platform=False)
    try:
        async with open_api(cluster.record.platform_url, key) as api:
            await wait_key_known(api)
            assert await operator_statuses(api) == {403}
            assert (await api.get(UNITS)).status_code == 200
            refused = await api.post(UNITS, json={})
            assert (refused.status_code, code_of(refused)) == (403, "forbidden")
    finally:
        await remove_key(kube, key)


async def test_an_earlier_releases_key_keeps_its_platform_role_and_a_warning_names_it(
    cluster: RunningCluster, kube: KubeClient, tmp_path: Path
) -> None:
    made = {
        is_platform: await add_key_record(kube, f"t-{secrets.token_hex(3)}", (Role.ADMIN,), is_platform=is_platform)
        for is_platform in (None, True)
    }
    try:
        async with api_process(cluster.api_kubeconfig, tmp_path / "api.log") as (daemon, url):
            for key in made.values():
                async with open_api(url, key) as api:
                    await wait_ready(api)
                    await wait_key_known(api)
                    assert await operator_statuses(api) == {200, 400}
            warning = await daemon.says("keys.platform-undeclared")
        assert warning["level"] == "warning"
        named = [key for entry in daemon.entries() for key in entry.get("keys", ())]
        assert named.count(made[None].split("_")[1]) == 1
        assert made[True].split("_")[1] not in named
    finally:
        for key in made.values():
            await remove_key(kube, key)


@pytest.fixture
async def second_namespace(kube: KubeClient) -> AsyncIterator[str]:
    """A namespace that once meant the tenant `default`, too."""
    await create_namespace(kube, SECOND)
    yield SECOND
    await kube.delete(NAMESPACES.item(SECOND))

    async def is_gone() -> bool:
        return await find(kube, NAMESPACES.item(SECOND)) is None

    await eventually(is_gone)


def edited_unit(name: str, namespace: str) -> Json:
    """A unit that differs from its accepted spec: in a tenant's namespace it is put back."""
    body = unit_body(name, namespace=namespace, running=False, image="example/edited")
    accepted = accepted_text(GPUUnitSpec.model_validate({**body["spec"], "image": "example/accepted"}))
    body["metadata"]["annotations"] = {names.ANNOTATION_ACCEPTED_SPEC: accepted}
    return body


async def test_objects_in_a_namespace_that_looks_like_the_default_tenants_are_not_the_default_tenants(
    api: httpx.AsyncClient, kube: KubeClient, second_namespace: str
) -> None:
    ours, planted = f"ours-{secrets.token_hex(3)}", f"planted-{secrets.token_hex(3)}"
    # Planted first: what the controllers do with ours they had the chance to do with these.
    for name, namespace in ((planted, second_namespace), (ours, INSTANCES)):
        await create_unit(kube, edited_unit(name, namespace))
        for path, body in ((GPU_FUNCTIONS, function_body(name, maxWorkers=1)), (GPU_STORAGES, storage_body(name))):
            body["metadata"]["namespace"] = namespace
            await kube.create(path.collection(namespace), body)
    try:

        async def ours_are_handled() -> bool | NotYet:
            unit = await get_unit(kube, ours)
            claim = await find(kube, PERSISTENT_VOLUME_CLAIMS.item(ours, INSTANCES))
            is_put_back = unit["spec"]["image"] == "example/accepted"
            return (is_put_back and claim is not None) or NotYet((unit["spec"], claim))

        async def function_is_refused() -> Json | None:
            function = await kube.get(GPU_FUNCTIONS.item(planted, second_namespace))
            is_judged = "conditions" in function.get("status", {})
            return ready_condition(function) if is_judged else None

        await eventually(ours_are_handled)
        assert f"{second_namespace} is none" in (await eventually(function_is_refused))["message"]
        assert (await get_unit(kube, planted, second_namespace))["spec"]["image"] == "example/edited"
        assert await find(kube, PERSISTENT_VOLUME_CLAIMS.item(planted, second_namespace)) is None
        for address in (UNITS, "/api/v1/gpu-storages", "/api/v1/serverless/functions"):
            assert (await api.get(f"{address}/{planted}")).status_code == 404
        drift = await api.get("/api/v1/operator/drift", params={"limit": 500})
        assert drift.status_code == 200
        assert planted not in drift.text
    finally:
        for path in (GPU_UNITS, GPU_FUNCTIONS, GPU_STORAGES):
            await kube.delete(path.item(ours, INSTANCES))
