"""The API's process: with Kubernetes, without it by choice, and without it against its will; and its end."""

import signal
from pathlib import Path

import httpx
import pytest
import yaml

from tests.support.api import UNITS, api_process, code_of, open_api, scrape, wait_ready
from tests.support.clusters import RunningCluster
from tests.support.daemons import running_daemon
from tests.support.ports import free_port
from tests.support.server_events import watching

OFF = {"GPU_PLATFORM_API_KUBE_MODE": "off"}
REQUIRED = {"GPU_PLATFORM_API_KUBE_MODE": "required"}
NEEDS_KUBERNETES = (
    ("GET", UNITS),
    ("POST", UNITS),
    ("GET", f"{UNITS}/x"),
    ("PUT", f"{UNITS}/x"),
    ("DELETE", f"{UNITS}/x"),
    ("POST", f"{UNITS}/x/start"),
    ("GET", f"{UNITS}/x/logs"),
    ("GET", f"{UNITS}/x/proxy/http/"),
    ("GET", f"{UNITS}?watch=true"),
    ("GET", "/api/v1/operator/specs"),
    ("GET", "/api/v1/operator/jobs"),
    ("GET", "/api/v1/operator/inventory"),
    ("GET", "/api/v1/operator/drift"),
)


async def assert_unavailable(api: httpx.AsyncClient, method: str, path: str) -> None:
    answer = await api.request(method, path, json={} if method in ("POST", "PUT") else None)
    assert (answer.status_code, code_of(answer)) == (503, "service_unavailable"), (method, path, answer.text)
    assert int(answer.headers["retry-after"]) >= 1


async def test_without_kubernetes_by_choice_health_answers_and_the_rest_says_why_not(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    settings = {**OFF, "GPU_PLATFORM_API_AUTH": "none"}
    async with (
        api_process(cluster.api_kubeconfig, tmp_path / "log", settings) as (_, url),
        open_api(url, None, patience=0) as api,
    ):
        await wait_ready(api)
        health = await api.get("/api/v1/health")
        assert health.status_code == 200
        assert health.json()["data"]["kubernetesConnected"] is False
        assert health.json()["data"]["degraded"]
        assert "runtime_metrics_scrape_success 0.0" in await scrape(api)
        for method, path in NEEDS_KUBERNETES:
            await assert_unavailable(api, method, path)


async def test_without_kubernetes_keys_cannot_be_looked_up(cluster: RunningCluster, tmp_path: Path) -> None:
    async with (
        api_process(cluster.api_kubeconfig, tmp_path / "log", OFF) as (_, url),
        open_api(url, cluster.record.api_key, patience=0) as api,
    ):
        await wait_ready(api)
        await assert_unavailable(api, "GET", UNITS)
        assert (await api.get(UNITS, headers={"Authorization": ""})).status_code == 401
        assert (await api.get("/api/v1/health")).status_code == 200


def unreachable(kubeconfig: Path, copy: Path) -> Path:
    """The same access to a port where nobody listens."""
    document = yaml.safe_load(kubeconfig.read_text())
    for entry in document["clusters"]:
        entry["cluster"]["server"] = f"https://127.0.0.1:{free_port()}"
    copy.write_text(yaml.safe_dump(document))
    return copy


@pytest.mark.parametrize("what", ["a server that is away", "no kubeconfig", "no file at all"])
async def test_where_kubernetes_is_required_and_missing_the_process_ends_with_one_sentence(
    cluster: RunningCluster, tmp_path: Path, what: str
) -> None:
    text = tmp_path / "text"
    text.write_text("just a text\n")
    kubeconfig = {
        "a server that is away": unreachable(cluster.kubeconfig, tmp_path / "kubeconfig"),
        "no kubeconfig": text,
        "no file at all": tmp_path / "missing",
    }[what]
    log = tmp_path / "log"
    async with api_process(kubeconfig, log, REQUIRED) as (daemon, _):
        assert await daemon.ends() == 1
    # The Kubernetes library may have logged something before.
    [sentence] = [line for line in log.read_text().splitlines() if not line.startswith("{")]
    assert sentence.startswith("error: ")


async def test_where_kubernetes_is_required_and_there_the_api_serves(cluster: RunningCluster, tmp_path: Path) -> None:
    async with (
        api_process(cluster.api_kubeconfig, tmp_path / "log", REQUIRED) as (_, url),
        open_api(url, cluster.record.api_key) as api,
    ):
        await wait_ready(api)
        assert (await api.get(UNITS)).status_code == 200


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"AUTH": "none", "HTTP_ADDR": "0.0.0.0:0"}, "error: auth is none, which lets everybody in"),
        ({"HTTP_ADDR": "192.0.2.1:80"}, "error: cannot listen on 192.0.2.1:80: "),
        (
            {"HTTP_ADDR": "127.0.0.1:0", "PROBE_ADDRESS": "127.0.0.1:0", "METRICS_ADDRESS": "192.0.2.1:80"},
            "error: cannot listen on 192.0.2.1:80: Cannot assign requested address; choose another metricsAddress",
        ),
        ({"BURST": "many"}, 'error: GPU_PLATFORM_API_BURST: burst is "many", and should be a valid integer'),
    ],
)
async def test_settings_that_cannot_be_used_end_the_process_with_one_sentence(
    tmp_path: Path, settings: dict[str, str], words: str
) -> None:
    environment = {f"GPU_PLATFORM_API_{key}": value for key, value in settings.items()}
    log = tmp_path / "log"
    async with running_daemon("platform_api", log, {**OFF, **environment}) as daemon:
        assert await daemon.ends() == 2
    [sentence] = log.read_text().splitlines()
    assert sentence.startswith(words)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_process_in_order_also_while_somebody_watches(
    cluster: RunningCluster, tmp_path: Path, number: signal.Signals
) -> None:
    async with (
        api_process(cluster.api_kubeconfig, tmp_path / "log") as (daemon, url),
        open_api(url, cluster.record.api_key) as api,
    ):
        await wait_ready(api)
        async with watching(api, UNITS) as stream:
            await stream.until_id()
            daemon.signal(number)
            assert await daemon.ends() == 0
        assert daemon.find_entry("api.stopped") is not None
