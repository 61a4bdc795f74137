"""The GPUs' own figures, from an exporter over real HTTP: in health, in Prometheus' format, and for each unit."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import PODS
from tests.support.api import UNITS, api_process, code_of, open_api, scrape, wait_ready
from tests.support.clusters import RunningCluster
from tests.support.exporter import Exporter, exporter_text, running_exporter
from tests.support.units_and_stock import INSTANCES, ensure_spec, stock_pool
from tests.support.units_api import post_ready_unit, remove_unit, spec_body
from tests.support.waiting import eventually

SPEC = "busy.1"
CALLS = 20


@pytest.fixture(scope="module")
def exporter() -> Iterator[Exporter]:
    with running_exporter() as running:
        yield running


@pytest.fixture(scope="module")
async def asking(
    cluster: RunningCluster, exporter: Exporter, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[httpx.AsyncClient]:
    """An API that asks the exporter."""
    log: Path = tmp_path_factory.mktemp("asking") / "api.log"
    settings = {"GPU_PLATFORM_API_NVIDIA_METRICS_ENDPOINT": exporter.url}
    async with (
        api_process(cluster.api_kubeconfig, log, settings) as (_, url),
        open_api(url, cluster.record.api_key, patience=0) as api,
    ):
        await wait_ready(api)
        yield api


@pytest.fixture(scope="module")
async def unit(api: httpx.AsyncClient, kube: KubeClient) -> AsyncIterator[str]:
    """A Ready unit; the exporter says that the first GPU is its pod's."""
    await ensure_spec(kube, spec_body(SPEC))
    async with stock_pool(kube, "busy", 1, specName=SPEC):
        yield (await post_ready_unit(api, "busy", specName=SPEC))["name"]
        await remove_unit(api, kube, "busy")


async def health_of(api: httpx.AsyncClient) -> Json:
    health: Json = (await api.get("/api/v1/health")).json()["data"]
    return health


async def test_parity_4_health_sums_what_the_exporter_says(asking: httpx.AsyncClient) -> None:
    async def is_connected() -> Json | None:
        health = await health_of(asking)
        return health if health["nvidiaMetricsConnected"] else None

    health = await eventually(is_connected)
    assert (health["gpuDeviceCount"], health["totalGpuMemoryMiB"]) == (2, 163_840)
    assert health["averageGpuUtilizationPercent"] == 37.5
    metrics = await scrape(asking)
    assert "runtime_nvidia_gpu_devices_total 2.0" in metrics


async def test_a_unit_is_shown_the_gpus_of_its_own_pod(
    asking: httpx.AsyncClient, kube: KubeClient, exporter: Exporter, unit: str
) -> None:
    selector = {"labelSelector": f"{names.LABEL_UNIT}={unit}"}
    [pod] = (await kube.get(PODS.collection(INSTANCES), selector))["items"]
    exporter.text = exporter_text(INSTANCES, pod["metadata"]["name"])

    async def has_devices() -> Json | None:
        view = (await asking.get(f"{UNITS}/{unit}/metrics")).json()["data"]
        return view if view["devices"] else None

    view = await eventually(has_devices)
    assert (view["unit"], "readAt" in view) == (unit, True)
    assert view["devices"] == [
        {
            "gpu": "0",
            "uuid": "GPU-a",
            "product": "NVIDIA H100",
            "node": "node-a",
            "utilizationPercent": 75,
            "memoryUsedMiB": 61_440,
            "memoryFreeMiB": 20_480,
            "memoryTotalMiB": 81_920,
        }
    ]


async def test_without_an_exporter_the_answer_is_a_404_that_says_so(api: httpx.AsyncClient, unit: str) -> None:
    answer = await api.get(f"{UNITS}/{unit}/metrics")
    assert (answer.status_code, code_of(answer)) == (404, "gpu_metrics_not_configured")
    missing = await api.get(f"{UNITS}/no-such-unit/metrics")
    assert (missing.status_code, code_of(missing)) == (404, "gpuunit_not_found")
    assert (await health_of(api))["nvidiaMetricsConnected"] is False


async def test_a_silent_exporter_is_a_503_and_delays_nobody(
    asking: httpx.AsyncClient, exporter: Exporter, unit: str
) -> None:
    """Its other troubles: see test_gpu_readings_reader."""
    words = "no answer in time"
    exporter.is_silent = True

    async def is_told() -> httpx.Response | None:
        answer = await asking.get(f"{UNITS}/{unit}/metrics")
        return answer if answer.status_code == 503 and words in answer.text else None

    try:
        answer = await eventually(is_told)
        assert "Retry-After" in answer.headers
        asked = exporter.asked
        for _ in range(CALLS):
            assert words in (await health_of(asking))["nvidiaMetricsError"]
        # A request does not ask the exporter, which is asked at its own pace, and hangs alone.
        assert exporter.asked - asked < CALLS / 2
    finally:
        exporter.is_silent = False
