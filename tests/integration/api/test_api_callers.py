"""Who may do what, and that nobody sees anything of anybody else."""

from collections.abc import AsyncIterator

import httpx
import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.tenants import DEFAULT_TENANT, Role
from gpu_platform.kube import KubeClient
from tests.support.api import UNITS, add_key, code_of, open_api, remove_key, unit_request
from tests.support.clusters import RunningCluster
from tests.support.tenants import key_of, tenant, wait_key_known
from tests.support.units_and_stock import create_unit, delete_unit, get_unit, unit_body, wait_unit_phase
from tests.support.waiting import eventually

OPERATOR = "/api/v1/operator"

ROUTES = {
    "see units": ("GET", UNITS),
    "make units": ("POST", UNITS),
    "see stock": ("GET", f"{OPERATOR}/stock-units"),
    "make stock": ("POST", f"{OPERATOR}/stockpools"),
    "see jobs": ("GET", f"{OPERATOR}/jobs"),
    "see the inventory": ("GET", f"{OPERATOR}/inventory"),
    "see the catalogue": ("GET", f"{OPERATOR}/specs"),
    "see health": ("GET", "/api/v1/health"),
}
OPERATE = {"see stock", "make stock", "see jobs", "see the inventory", "see the catalogue"}
MAY = {
    Role.VIEWER: {"see units", "see the catalogue", "see health"},
    Role.INVOKER: {"see health"},
    Role.EDITOR: {"see units", "make units", "see the catalogue", "see health"},
    Role.OPERATOR: OPERATE | {"see health"},
    Role.ADMIN: set(ROUTES),
}


@pytest.fixture(scope="module")
async def keys(kube: KubeClient) -> AsyncIterator[dict[Role, str]]:
    """One of each role; the API learns of all of them at once."""
    keys = {role: await add_key(kube, DEFAULT_TENANT, role) for role in Role}
    yield keys
    for key in keys.values():
        await remove_key(kube, key)


@pytest.mark.parametrize("role", Role)
async def test_a_key_may_what_its_role_says_and_nothing_else(
    cluster: RunningCluster, keys: dict[Role, str], role: Role
) -> None:
    async with open_api(cluster.record.platform_url, keys[role]) as api:
        await wait_key_known(api)
        # A body that is wrong gets a 400 from whoever would have been let in.
        answers = {
            name: await api.request(method, path, json={} if method == "POST" else None)
            for name, (method, path) in ROUTES.items()
        }
    allowed = {name for name, answer in answers.items() if answer.status_code != 403}
    assert allowed == MAY[role]
    expected = {name: 403 if name not in allowed else 400 if name.startswith("make") else 200 for name in ROUTES}
    assert {name: answer.status_code for name, answer in answers.items()} == expected


CALLS = {
    "get": ("GET", "", None),
    "put": ("PUT", "", {"image": "example/stolen"}),
    "delete": ("DELETE", "", None),
    "stop": ("POST", "/stop", None),
    "start": ("POST", "/start", None),
    "restart": ("POST", "/restart", None),
    "events": ("GET", "/events", None),
    "logs": ("GET", "/logs", None),
    "address": ("GET", "/address", None),
    "stack": ("GET", "/stack", None),
    "preview": ("POST", "/preview", {}),
}


def without_the_name(answer: httpx.Response, name: str) -> tuple[int, Json, set[str]]:
    error = dict(answer.json()["error"])
    error.pop("requestID")
    shown = {key: value.replace(name, "…") for key, value in error.items()}
    return answer.status_code, shown, set(answer.headers)


async def test_another_tenants_unit_is_exactly_like_one_that_does_not_exist(
    kube: KubeClient, cluster: RunningCluster
) -> None:
    await create_unit(kube, unit_body("private", running=False))
    await wait_unit_phase(kube, "private", "Stopped")
    async with tenant(kube, cluster.record.platform_url, Role.EDITOR) as other:
        for what, (method, suffix, body) in CALLS.items():
            theirs = await other.api.request(method, f"{UNITS}/private{suffix}", json=body)
            nobodys = await other.api.request(method, f"{UNITS}/nowhere{suffix}", json=body)
            assert code_of(theirs) == "gpuunit_not_found", what
            assert without_the_name(theirs, "private") == without_the_name(nobodys, "nowhere"), what
        assert (await other.api.get(UNITS)).json() == {"data": []}
        refused = await other.api.post(UNITS, json=unit_request("mine", namespace="runtime-instance"))
        assert (refused.status_code, refused.json()["error"]["details"][0]["field"]) == (400, "namespace")
        assert other.namespace in refused.json()["error"]["message"]
    unit = await get_unit(kube, "private")
    assert unit["spec"]["image"] == "example/train"
    await delete_unit(kube, "private")


async def test_an_operator_does_not_see_the_tenants_units(cluster: RunningCluster, keys: dict[Role, str]) -> None:
    async with open_api(cluster.record.platform_url, keys[Role.OPERATOR]) as api:
        await wait_key_known(api)
        assert (await api.get(f"{UNITS}/any")).status_code == 403


async def test_a_tenant_whose_namespace_is_missing_is_told_to_ask_an_operator(
    kube: KubeClient, cluster: RunningCluster
) -> None:
    async with key_of(kube, cluster.record.platform_url, "homeless", Role.EDITOR) as (api, _):
        assert (await api.get(UNITS)).json() == {"data": []}
        answer = await api.post(UNITS, json=unit_request("anything"))
        assert (answer.status_code, code_of(answer)) == (403, "forbidden")
        assert "runtime-instance-homeless" in answer.json()["error"]["message"]


async def test_a_revoked_key_is_refused_and_the_others_are_not(
    kube: KubeClient, cluster: RunningCluster, api: httpx.AsyncClient
) -> None:
    key = await add_key(kube, DEFAULT_TENANT, Role.VIEWER)
    async with open_api(cluster.record.platform_url, key) as revoked:
        await wait_key_known(revoked)
        assert (await revoked.get(UNITS)).status_code == 200
        await remove_key(kube, key)

        async def is_refused() -> httpx.Response | None:
            answer = await revoked.get(UNITS)
            return answer if answer.status_code == 401 else None

        assert code_of(await eventually(is_refused)) == "unauthenticated"
    assert (await api.get(UNITS)).status_code == 200


async def test_a_stream_ends_with_its_key(kube: KubeClient, cluster: RunningCluster) -> None:
    url = cluster.record.platform_url
    async with (
        key_of(kube, url, DEFAULT_TENANT, Role.VIEWER) as (api, key),
        api.stream("GET", UNITS, params={"watch": "true"}) as stream,
    ):
        assert stream.status_code == 200
        await remove_key(kube, key)
        # How soon: see test_streams.
        async for _ in stream.aiter_lines():
            pass
