"""The API without Kubernetes: it says so, and stays up."""

from collections.abc import AsyncIterator

import httpx
import pytest

from platform_api.app import create_app
from platform_api.health.collector import register_platform_metrics
from platform_api.health.service import find_unready
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


def test_it_is_ready_when_it_is_meant_to_be_without() -> None:
    assert find_unready(build_deps(ApiSettings(kube_mode="off", auth="none"), None)) == ()


def test_it_is_not_ready_when_it_only_found_none() -> None:
    deps = build_deps(ApiSettings(kube_mode="auto", auth="none"), None)
    assert find_unready(deps) == ("there is no Kubernetes to talk to (kubeMode: auto)",)


def test_parity_67_the_scrape_works_and_is_no_success() -> None:
    deps = build_deps(ApiSettings(kube_mode="off", auth="none"), None)
    register_platform_metrics(deps.metrics.registry, deps)
    lines = deps.metrics.render().decode().splitlines()
    assert "runtime_metrics_scrape_success 0.0" in lines
    assert "# TYPE gpu_platform_api_requests_total counter" in lines


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/metrics"])
async def test_probes_and_metrics_are_not_on_the_public_port(lonely: httpx.AsyncClient, path: str) -> None:
    assert (await lonely.get(path)).status_code == 404
