"""The form of every answer: what a program may rely on, whatever it asked for."""

import asyncio
import re
import time
from collections.abc import AsyncIterator

import httpx
import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient
from platform_api.app import ROUTERS
from tests.support.api import UNITS, api_process, code_of, open_api, unit_request, wait_ready
from tests.support.clusters import RunningCluster
from tests.support.tenants import Tenant, tenant
from tests.support.units_and_stock import create_unit, delete_unit, ensure_spec, get_unit, unit_body, wait_unit_phase

JOBS = "/api/v1/operator/jobs"
BODY_LIMIT = 131_072


@pytest.fixture(scope="module")
async def acme(kube: KubeClient, cluster: RunningCluster) -> AsyncIterator[Tenant]:
    async with tenant(kube, cluster.record.platform_url, Role.EDITOR) as made:
        yield made


@pytest.fixture
async def parked(kube: KubeClient) -> AsyncIterator[str]:
    """A stopped unit of the default tenant: it needs neither stock nor a pod."""
    await create_unit(kube, unit_body("parked", running=False))
    await wait_unit_phase(kube, "parked", "Stopped")
    yield "parked"
    await delete_unit(kube, "parked")


def assert_refused(answer: httpx.Response, status: int, code: str) -> Json:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
    assert set(answer.json()) == {"error"}
    error: Json = answer.json()["error"]
    assert error["code"] == code
    assert error["requestID"] == answer.headers["x-request-id"]
    assert set(error) - {"details"} == {"code", "message", "requestID"}
    assert error["message"]
    return error


async def test_success_is_data_and_nothing_else(api: httpx.AsyncClient, parked: str) -> None:
    for path in (UNITS, f"{UNITS}/{parked}", "/api/v1/health", JOBS, "/api/v1/operator/specs"):
        answer = await api.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        assert set(answer.json()) == {"data"}, path


async def test_a_unit_is_shown_in_camel_case_without_what_is_unknown(api: httpx.AsyncClient, parked: str) -> None:
    unit = (await api.get(f"{UNITS}/{parked}")).json()["data"]
    assert unit["name"] == parked
    assert (unit["namespace"], unit["lifecycle"], unit["specName"]) == ("runtime-instance", "instance", "g1.1")
    assert (unit["running"], unit["phase"], unit["readyReplicas"]) == (False, "Stopped", 0)
    assert "nodeName" not in unit
    assert None not in unit.values()


async def test_every_answer_has_the_headers_of_the_house(api: httpx.AsyncClient) -> None:
    for path in (UNITS, f"{UNITS}/missing", "/nowhere", "/openapi.json"):
        headers = (await api.get(path)).headers
        assert re.fullmatch(r"[0-9a-f]{16}", headers["x-request-id"]), path
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert "server" not in headers


async def test_a_callers_request_id_comes_back_in_header_and_body(api: httpx.AsyncClient) -> None:
    answer = await api.get("/nowhere", headers={"X-Request-ID": "build-7"})
    assert answer.headers["x-request-id"] == "build-7"
    assert answer.json()["error"]["requestID"] == "build-7"
    refused = await api.get("/nowhere", headers={"X-Request-ID": "not one"})
    assert refused.headers["x-request-id"] != "not one"


async def test_a_wrong_body_is_a_400_that_names_the_fields(api: httpx.AsyncClient) -> None:
    body = {**unit_request("wrong"), "gpus": 4, "template": {"ports": [{"name": "web", "port": "80"}]}}
    error = assert_refused(await api.post(UNITS, json=body), 400, "invalid_request")
    assert {detail["field"] for detail in error["details"]} == {"gpus", "template.ports[0].port"}
    assert all(detail["message"] for detail in error["details"])


@pytest.mark.parametrize(
    ("params", "field"),
    [({"limit": 0}, "limit"), ({"limit": "many"}, "limit"), ({"phase": "Great"}, "phase"), ({"watch": "7"}, "watch")],
)
async def test_a_wrong_parameter_is_a_400_that_names_it(api: httpx.AsyncClient, params: Json, field: str) -> None:
    error = assert_refused(await api.get(UNITS, params=params), 400, "invalid_request")
    assert [detail["field"] for detail in error["details"]] == [field]


async def test_what_the_schema_cannot_see_is_a_400_too(api: httpx.AsyncClient) -> None:
    body = unit_request("wrong", access={"primaryPort": "web"})
    error = assert_refused(await api.post(UNITS, json=body), 400, "invalid_request")
    assert error["details"][0]["field"] == "access.primaryPort"
    unknown = assert_refused(await api.post(UNITS, json=unit_request("wrong", specName="x.1")), 400, "invalid_request")
    assert unknown["details"][0]["field"] == "specName"
    assert "g1.1" in unknown["message"]


async def test_a_body_that_is_not_said_to_be_json_is_a_400(api: httpx.AsyncClient) -> None:
    for headers in ({"Content-Type": "text/plain"}, {}):
        error = assert_refused(await api.post(UNITS, content=b"{}", headers=headers), 400, "invalid_request")
        assert error["details"][0]["field"] == "Content-Type"


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Basic YTpi", "Bearer gk_abcd1234", f"Bearer gk_abcd1234_{'s' * 43}"],
)
async def test_without_a_known_key_the_answer_is_401(cluster: RunningCluster, authorization: str | None) -> None:
    async with open_api(cluster.record.platform_url, None) as stranger:
        headers = {} if authorization is None else {"Authorization": authorization}
        for path in (UNITS, f"{UNITS}/x", JOBS):
            answer = await stranger.get(path, headers=headers)
            assert_refused(answer, 401, "unauthenticated")
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_stranger_learns_nothing_from_what_is_wrong_with_the_rest(cluster: RunningCluster) -> None:
    async with open_api(cluster.record.platform_url, None) as stranger:
        assert (await stranger.get(UNITS, params={"limit": 0})).status_code == 401
        assert (await stranger.post(UNITS, content=b"not JSON")).status_code == 401
        assert (await stranger.put(f"{UNITS}/x", json={"unknown": 1})).status_code == 401


async def test_the_wrong_role_is_a_403_that_says_which_one_is_needed(acme: Tenant) -> None:
    error = assert_refused(await acme.api.get(JOBS), 403, "forbidden")
    assert error["message"] == "this needs the role operator; the key has editor"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/nowhere", "not_found"),
        ("/api/v1/gpu-units/", "not_found"),
        ("/api/v2/gpu-units", "not_found"),
        (f"{UNITS}/missing", "gpuunit_not_found"),
        (f"{UNITS}/..%2F..%2Fsecrets", "not_found"),
        (f"{UNITS}/%2E%2E", "gpuunit_not_found"),
        (f"{UNITS}/UPPER", "gpuunit_not_found"),
        (f"{UNITS}/a%00b", "gpuunit_not_found"),
        (f"{UNITS}/missing/events", "gpuunit_not_found"),
        (f"{UNITS}/missing/logs", "gpuunit_not_found"),
        (f"{UNITS}/missing/address", "gpuunit_not_found"),
        (f"{UNITS}/missing/stack", "gpuunit_not_found"),
        (f"{UNITS}/missing/previews/any", "preview_not_found"),
        (f"{JOBS}/missing", "job_not_found"),
        ("/api/v1/operator/stockpools/missing", "stockpool_not_found"),
        ("/api/v1/operator/specs/missing", "spec_not_found"),
    ],
)
async def test_what_is_not_there_is_a_404_that_says_what(api: httpx.AsyncClient, path: str, code: str) -> None:
    assert_refused(await api.get(path), 404, code)


async def test_what_cannot_be_done_there_is_a_405(api: httpx.AsyncClient) -> None:
    answer = await api.patch(UNITS, json={})
    assert_refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"]


async def test_a_stale_etag_is_a_412_and_changes_nothing(api: httpx.AsyncClient, kube: KubeClient, parked: str) -> None:
    path = f"{UNITS}/{parked}"
    etag = (await api.get(path)).headers["etag"]
    changed = await api.put(path, json={"image": "example/new"}, headers={"If-Match": etag})
    assert (changed.status_code, changed.json()["data"]["image"]) == (200, "example/new")
    assert changed.headers["etag"] != etag
    stale = await api.put(path, json={"image": "example/newer"}, headers={"If-Match": etag})
    assert_refused(stale, 412, "precondition_failed")
    assert (await get_unit(kube, parked))["spec"]["image"] == "example/new"


async def in_chunks(size: int) -> AsyncIterator[bytes]:
    for _ in range(0, size, 10_000):
        yield b" " * 10_000


@pytest.mark.parametrize("is_chunked", [False, True], ids=["with Content-Length", "in chunks"])
async def test_a_body_beyond_the_limit_is_a_413(cluster: RunningCluster, is_chunked: bool) -> None:
    async with open_api(cluster.record.platform_url, cluster.record.api_key) as api:
        content = in_chunks(BODY_LIMIT + 20_000) if is_chunked else b" " * (BODY_LIMIT + 1)
        headers = {"Content-Type": "application/json"}
        error = assert_refused(await api.post(UNITS, content=content, headers=headers), 413, "body_too_large")
        assert str(BODY_LIMIT) in error["message"]
        assert (await api.get(UNITS)).status_code == 200


async def test_a_key_that_asks_too_fast_gets_a_429_and_is_told_when_to_come_back(
    cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = {"GPU_PLATFORM_API_BURST": "3", "GPU_PLATFORM_API_REQUESTS_PER_SECOND": "1"}
    log = tmp_path_factory.mktemp("api") / "log"
    async with (
        api_process(cluster.api_kubeconfig, log, settings) as (_, url),
        open_api(url, cluster.record.api_key) as api,
    ):
        await wait_ready(api)
        began_at = time.monotonic()
        answers = await asyncio.gather(*(api.get(f"{UNITS}/x") for _ in range(20)))
        let_in = [answer for answer in answers if answer.status_code == 404]
        assert 3 <= len(let_in) <= 3 + time.monotonic() - began_at
        refused = [answer for answer in answers if answer not in let_in]
        for answer in refused:
            assert_refused(answer, 429, "too_many_requests")
            assert answer.headers["RateLimit-Policy"] == '"key";q=3;w=3, "tenant";q=2000;w=2'
            assert answer.headers["RateLimit"].startswith('"key";r=0;t=3, "tenant";r=')
        await asyncio.sleep(int(refused[-1].headers["retry-after"]) + 0.1)
        assert (await api.get(f"{UNITS}/x")).status_code == 404
        assert (await api.get("/api/v1/health", headers={"Authorization": ""})).json()["data"] == {"status": "ok"}


async def test_many_starts_without_stock_are_all_refused_alike(kube: KubeClient, api: httpx.AsyncClient) -> None:
    """They share one operation, which each of them may find half removed."""
    spec = {"apiVersion": "runtime.lokiwager.io/v1alpha1", "kind": "GPUSpec", "metadata": {"name": "none.1"}}
    await ensure_spec(kube, {**spec, "spec": {"memory": "1Gi", "gpu": 0}})
    await create_unit(kube, unit_body("hungry", specName="none.1", running=False))
    await wait_unit_phase(kube, "hungry", "Stopped")
    answers = await asyncio.gather(*(api.post(f"{UNITS}/hungry/start") for _ in range(30)))
    assert {code_of(answer) for answer in answers} == {"insufficient_capacity"}
    await delete_unit(kube, "hungry")


async def test_the_description_has_every_route_and_no_422(cluster: RunningCluster) -> None:
    async with open_api(cluster.record.platform_url, None) as stranger:
        document = (await stranger.get("/openapi.json")).json()
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    routes = {
        (method, str(vars(route)["path"]).replace(":path}", "}").replace(":rest}", "}"))
        for router in ROUTERS
        for route in router.routes
        if vars(route)["include_in_schema"] and router.include_in_schema
        for method in vars(route)["methods"]
    }
    assert described == routes
    assert len(described) > 25
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert "422" not in operation["responses"], (method, path)
            assert operation["responses"]["default"]["content"]["application/json"]["schema"] == {
                "$ref": "#/components/schemas/ErrorEnvelope"
            }


async def test_health_answers_everybody(cluster: RunningCluster) -> None:
    async with open_api(cluster.record.platform_url, None) as stranger:
        assert (await stranger.get("/api/v1/health")).json()["data"] == {"status": "ok"}
