"""The API without Kubernetes: it says so, and stays up."""

from collections.abc import AsyncIterator

import httpx
import pytest

from platform_api.app import create_app
from platform_api.health.collector import register_platform_metrics
from platform_api.process import build_deps
from platform_api.settings import ApiSettings

SEED = {"operationID": "a", "specName": "g1.1", "replicas": 1}


@pytest.fixture
async def lonely() -> AsyncIterator[httpx.AsyncClient]:
    async with opened(ApiSettings(kube_mode="off", auth="none")) as client:
        yield client


def opened(settings: ApiSettings) -> httpx.AsyncClient:
    deps = build_deps(settings, None)
    register_platform_metrics(deps.metrics.registry, deps)
    transport = httpx.ASGITransport(create_app(deps))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def test_parity_2_health_answers_and_says_that_there_is_none(lonely: httpx.AsyncClient) -> None:
    answer = await lonely.get("/api/v1/health")

    health = answer.json()["data"]
    assert answer.status_code == 200
    assert health["kubernetesConnected"] is False
    assert health["kubeError"] == "kubeMode is off"
    assert health["nodeCount"] == 0
    assert health["degraded"] == ["Kubernetes cannot be used: kubeMode is off."]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "stock-units", SEED),
        ("GET", "stock-units", None),
        ("DELETE", "stock-units/a", None),
        ("POST", "stockpools", SEED),
        ("GET", "stockpools", None),
        ("GET", "stockpools/a", None),
        ("GET", "stockpools/a/stack", None),
        ("PUT", "stockpools/a", {"replicas": 1}),
        ("DELETE", "stockpools/a", None),
        ("GET", "jobs", None),
        ("GET", "jobs/a", None),
        ("GET", "specs", None),
        ("GET", "specs/a", None),
        ("GET", "inventory", None),
    ],
)
async def test_parity_12_what_needs_kubernetes_is_unavailable(
    lonely: httpx.AsyncClient, method: str, path: str, body: dict[str, object] | None
) -> None:
    answer = await lonely.request(method, f"/api/v1/operator/{path}", json=body)

    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "service_unavailable"
    assert "Retry-After" in answer.headers


async def test_it_lives_and_is_ready_when_it_is_meant_to_be_without(lonely: httpx.AsyncClient) -> None:
    for path in ("/livez", "/readyz"):
        answer = await lonely.get(path)
        assert (answer.status_code, answer.text) == (200, "ok\n")


async def test_it_is_not_ready_when_it_only_found_none() -> None:
    async with opened(ApiSettings(kube_mode="auto", auth="none")) as client:
        answer = await client.get("/readyz")

    assert answer.status_code == 503
    assert answer.text == "there is no Kubernetes to talk to (kubeMode: auto)\n"


async def test_parity_67_the_scrape_works_and_is_no_success(lonely: httpx.AsyncClient) -> None:
    answer = await lonely.get("/metrics")

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert "runtime_metrics_scrape_success 0.0" in answer.text.splitlines()
    assert "gpu_platform_api_requests_total" in answer.text


async def test_figures_are_for_operators() -> None:
    async with opened(ApiSettings(kube_mode="off", auth="keys")) as client:
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/api/v1/health")).status_code == 200
