"""Probes and metrics of the API, on listeners of their own: they answer although the public port is full."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from gpu_platform.controller.probes import CONNECTION_LIMIT
from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient
from tests.support.api import UNITS, api_process, listeners_of, open_api, probe, scrape, wait_ready
from tests.support.clusters import RunningCluster
from tests.support.daemons import Daemon
from tests.support.raw_http import RawClient, build_head, open_raw
from tests.support.tenants import key_of
from tests.support.waiting import NotYet, eventually

TENANTS = ("first", "second", "third", "fourth")
"""One tenant may hold a quarter of the slots: together they hold all."""

LIMITS = {"slots": (4, 64), "connections": (64, 16)}
"""What is exhausted: request slots and connections of the process. A connection with a request under way makes no room
for another one."""

PATIENT = {
    # Longer than any test: what is held stays held.
    "GPU_PLATFORM_API_CLIENT_TIMEOUT_SECONDS": "300",
    "GPU_PLATFORM_API_FAILED_LOGINS_PER_MINUTE": "1000000",
}


@dataclass(frozen=True)
class Ground:
    daemon: Daemon
    api: httpx.AsyncClient


@pytest.fixture(scope="module")
async def ground(cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ground]:
    log: Path = tmp_path_factory.mktemp("probed") / "log"
    async with (
        api_process(cluster.api_kubeconfig, log) as (daemon, url),
        open_api(url, cluster.record.api_key, patience=0) as api,
    ):
        await wait_ready(api)
        yield Ground(daemon, api)


@asynccontextmanager
async def unfinished_requests(url: str) -> AsyncIterator[Callable[[Sequence[str]], Awaitable[None]]]:
    """Yields a function that begins a request with each of these keys, whose body is awaited while the block runs."""
    clients: list[RawClient] = []

    async def begin(keys: Sequence[str]) -> None:
        for key in keys:
            with suppress(ConnectionError):
                client = await open_raw(url)
                clients.append(client)
                body = ("Content-Type: application/json", "Content-Length: 100")
                await client.send(build_head(f"POST {UNITS}", f"Authorization: Bearer {key}", *body) + b"{")

    try:
        yield begin
    finally:
        for client in clients:
            client.close()


async def assert_probes_and_metrics_answer(api: httpx.AsyncClient) -> None:
    assert [(await probe(api, path)).text for path in ("/healthz", "/readyz")] == ["ok\n", "ok\n"]
    assert "runtime_metrics_scrape_success 1.0" in (await scrape(api)).splitlines()


@pytest.mark.parametrize("what", LIMITS)
async def test_probes_and_metrics_answer_although_the_public_port_is_full(
    cluster: RunningCluster, kube: KubeClient, tmp_path: Path, what: str
) -> None:
    slots, connections = LIMITS[what]
    settings = {
        "GPU_PLATFORM_API_MAX_REQUESTS_IN_FLIGHT": str(slots),
        "GPU_PLATFORM_API_MAX_CONNECTIONS": str(connections),
    }
    async with AsyncExitStack() as stack:
        _, url = await stack.enter_async_context(
            api_process(cluster.api_kubeconfig, tmp_path / "log", {**PATIENT, **settings})
        )
        api = await stack.enter_async_context(open_api(url, cluster.record.api_key, patience=0))
        await wait_ready(api)
        keys = [(await stack.enter_async_context(key_of(kube, url, name, Role.EDITOR)))[1] for name in TENANTS]
        begin = await stack.enter_async_context(unfinished_requests(url))

        async def is_full() -> bool:
            async with httpx.AsyncClient(headers=api.headers, timeout=5, trust_env=False) as caller:
                try:
                    answer = await caller.get(f"{url}{UNITS}")
                except httpx.TransportError:
                    return what == "connections"
                return what == "slots" and answer.status_code == 503

        async def do_they_answer_while_it_is_full() -> bool:
            # Again and again: one that has not sent its head yet may be evicted by the next.
            await begin(keys * (min(slots, connections) // len(TENANTS)))
            if not await is_full():
                return False
            await assert_probes_and_metrics_answer(api)
            return await is_full()

        await eventually(do_they_answer_while_it_is_full)


@pytest.mark.parametrize("path", ["/metrics", "/readyz", "/healthz", "/livez"])
async def test_the_public_port_has_neither_probes_nor_metrics(cluster: RunningCluster, path: str) -> None:
    async with (
        open_api(cluster.record.platform_url, cluster.record.api_key) as operator,
        open_api(cluster.record.platform_url, None) as stranger,
    ):
        assert [(await caller.get(path)).status_code for caller in (operator, stranger)] == [404, 404]
        assert path not in (await stranger.get("/openapi.json")).json()["paths"]


async def test_connections_that_send_nothing_do_not_keep_the_kubelet_and_prometheus_out(ground: Ground) -> None:
    listeners = listeners_of(ground.api)
    held = [await open_raw(url) for url in (listeners.probe_url, listeners.metrics_url) for _ in range(100)]
    try:
        for client in held[-50:]:
            with suppress(ConnectionError):
                await client.send(b"GET /metrics HTTP/1.1\r\nHost:")
        await assert_probes_and_metrics_answer(ground.api)
        assert open_sockets(ground.daemon.pid, listeners.metrics_url) <= CONNECTION_LIMIT
    finally:
        for client in held:
            client.close()


def open_sockets(pid: int, url: str) -> int:
    """Established connections of this process on the port of the URL."""
    inodes = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            inodes.add(str(file.readlink()).removeprefix("socket:[").rstrip("]"))
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    port = httpx.URL(url).port
    return sum(int(row[1].split(":")[1], 16) == port and row[3] == "01" and row[9] in inodes for row in rows)


async def test_a_process_whose_event_loop_hangs_is_not_alive(cluster: RunningCluster, tmp_path: Path) -> None:
    async with (
        api_process(cluster.api_kubeconfig, tmp_path / "log") as (daemon, url),
        open_api(url, cluster.record.api_key) as api,
    ):
        await wait_ready(api)
        daemon.signal(signal.SIGSTOP)
        try:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await probe(api, "/healthz")
        finally:
            daemon.signal(signal.SIGCONT)
        assert (await probe(api, "/healthz")).status_code == 200


async def test_port_0_is_any_free_one_and_the_log_names_it(cluster: RunningCluster, tmp_path: Path) -> None:
    settings = {f"GPU_PLATFORM_API_{name}_ADDRESS": "127.0.0.1:0" for name in ("PROBE", "METRICS")}
    async with (
        api_process(cluster.api_kubeconfig, tmp_path / "log", settings) as (daemon, _),
        httpx.AsyncClient(trust_env=False) as client,
    ):
        started = await daemon.says("api.started")
        assert (await client.get(f"http://{started['probes']}/healthz")).text == "ok\n"
        assert "gpu_platform_api_requests_total" in (await client.get(f"http://{started['metrics']}/metrics")).text


async def test_a_process_that_stops_is_alive_and_not_ready(cluster: RunningCluster, tmp_path: Path) -> None:
    async with (
        api_process(cluster.api_kubeconfig, tmp_path / "log") as (daemon, url),
        open_api(url, cluster.record.api_key) as api,
    ):
        await wait_ready(api)
        async with api.stream("GET", UNITS, params={"watch": "true"}) as stream:
            assert stream.status_code == 200
            daemon.signal(signal.SIGTERM)

            async def is_unready() -> bool | NotYet:
                answer = await probe(api, "/readyz")
                return (answer.status_code, answer.text) == (503, "it is stopping\n") or NotYet(answer.text)

            await eventually(is_unready)
            assert (await probe(api, "/healthz")).text == "ok\n"
        assert await daemon.ends() == 0
