"""Large bodies that are parked, and large answers that are not read: memory stays bounded, and others are served."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from gpu_platform.kube import KubeClient
from tests.support.api import UNITS, api_process, open_api, scrape, wait_ready
from tests.support.clusters import RunningCluster
from tests.support.invocations import INVOCATIONS, Ground, open_ground
from tests.support.raw_http import SMALL_BUFFER, RawClient, build_head, open_raw
from tests.support.tenants import wait_key_known
from tests.support.waiting import NotYet, eventually

MIB = 1 << 20
LARGE = 15 * MIB
CLIENTS = 24
"""Together they would hold 360 MiB. A tenant may hold 32 MiB: two of them."""

HELD = 2
ROOM = CLIENTS * LARGE // 2
"""For what is held, some copies of it, and what Python keeps."""

CLIENT_SECONDS = "2"
HEADERS = {"Content-Type": "application/json"}

TALKATIVE = f"""
from serverless import handler

@handler
def talk(payload):
    return "x" * {LARGE}
"""


@dataclass(frozen=True)
class Attacked:
    """An API process of its own: what it ever held is that of one test."""

    pid: int
    url: str
    honest: httpx.AsyncClient
    harmful: httpx.AsyncClient
    authorization: str

    async def open_many(self) -> list[RawClient]:
        return [await open_raw(self.url, receive_buffer=SMALL_BUFFER) for _ in range(CLIENTS)]

    async def check_others(self) -> None:
        assert (await self.honest.get(UNITS)).status_code == 200
        for tenant, size in ((self.honest, MIB), (self.harmful, 1_000)):
            answer = await tenant.post(INVOCATIONS, content=build_body(size), headers=HEADERS)
            assert answer.status_code == 404, answer.text


@pytest.fixture(scope="module")
async def ground(
    kube: KubeClient, cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Ground]:
    async with open_ground(kube, cluster, tmp_path_factory.mktemp("memory")) as made:
        yield made


@asynccontextmanager
async def attacked(ground: Ground, cluster: RunningCluster) -> AsyncIterator[Attacked]:
    settings = {**ground.api_settings, "GPU_PLATFORM_API_CLIENT_TIMEOUT_SECONDS": CLIENT_SECONDS}
    async with (
        api_process(cluster.api_kubeconfig, ground.root / f"api-{secrets.token_hex(4)}.log", settings) as (daemon, url),
        open_api(url, cluster.record.api_key) as honest,
        open_api(url, ground.acme.key) as harmful,
    ):
        await wait_ready(honest)
        await wait_key_known(harmful)
        yield Attacked(daemon.pid, url, honest, harmful, f"Authorization: Bearer {ground.acme.key}")


def build_body(size: int) -> bytes:
    return b'{"serverlessRequestID": "missing", "payload": "%b"}' % (b"x" * size)


def read_memory(pid: int, name: str) -> int:
    """Bytes of memory that a process has (VmRSS), or ever had (VmHWM)."""
    [line] = (each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith(f"{name}:"))
    return int(line.split()[1]) << 10


@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunks"])
async def test_parked_bodies_of_one_tenant_hold_bounded_memory(
    ground: Ground, cluster: RunningCluster, is_chunked: bool
) -> None:
    body = build_body(LARGE)
    framing = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {len(body)}"
    async with attacked(ground, cluster) as api:
        await eventually(lambda: is_not_found(api.harmful, body))
        before = read_memory(api.pid, "VmHWM")
        clients = await api.open_many()
        kind = ("Content-Type: application/json", "Connection: close")
        head = build_head(f"POST {INVOCATIONS}", framing, *kind, api.authorization)
        start = b"%x\r\n" % len(body) if is_chunked else b""
        reading = [asyncio.create_task(client.read_to_end()) for client in clients]
        for client in clients:
            await client.send(head + start)
        await asyncio.gather(*(send_but_the_end(client, body) for client in clients))

        async def are_refused() -> bool | NotYet:
            over = sum(task.done() for task in reading)
            return over >= CLIENTS - HELD or NotYet(f"{over} are refused")

        await eventually(are_refused)
        await api.check_others()
        grown = read_memory(api.pid, "VmHWM") - before
        for client in clients:
            await client.send(body[-1:] + (b"\r\n0\r\n\r\n" if is_chunked else b""))
        answers = [await task for task in reading]
        await eventually(lambda: is_not_found(api.harmful, body))
    for client in clients:
        client.close()
    statuses = [answer.status for answer in answers]
    # Bodies in chunks grow beside one another until the next part of one has no room.
    assert set(statuses) <= {404, 429}
    assert statuses.count(429) >= CLIENTS - HELD
    assert is_chunked or statuses.count(404) == HELD
    refused = next(answer for answer in answers if answer.status == 429)
    assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")
    assert grown < ROOM, f"{grown >> 20} MiB"


async def send_but_the_end(client: RawClient, body: bytes) -> None:
    for start in range(0, len(body) - 1, MIB):
        if not await client.send(body[start : min(start + MIB, len(body) - 1)]):
            return


async def is_not_found(api: httpx.AsyncClient, body: bytes) -> bool | NotYet:
    answer = await api.post(INVOCATIONS, content=body, headers=HEADERS, timeout=60)
    return answer.status_code == 404 or NotYet(answer.text)


async def test_large_results_that_are_not_read_hold_bounded_memory_and_their_connections_are_closed(
    ground: Ground, cluster: RunningCluster, tmp_path: Path
) -> None:
    function = await ground.function(f"f-{secrets.token_hex(4)}")
    (tmp_path / "talk.py").write_text(TALKATIVE)
    call_id = await ground.accept(function)
    async with replace(ground.workers(function), handler=f"{tmp_path / 'talk.py'}:talk").worker():
        assert (await ground.ends(call_id))["state"] == "succeeded"

    async with attacked(ground, cluster) as api:
        path = f"{INVOCATIONS}/{call_id}"

        async def is_whole() -> bool | NotYet:
            answer = await api.harmful.get(path)
            return len(answer.content) > LARGE or NotYet(answer.text[:200])

        async def are_stalled() -> bool | NotYet:
            text = await scrape(api.honest)
            line = next((each for each in text.splitlines() if 'refused_total{reason="answer_timeout"}' in each), "")
            return float(line.rpartition(" ")[2] or 0) >= HELD or NotYet(line)

        await eventually(is_whole)
        before = read_memory(api.pid, "VmHWM")
        clients = await api.open_many()
        for client in clients:
            await client.send(build_head(f"GET {path}", api.authorization, "Connection: close"))
        await api.check_others()
        await eventually(are_stalled)
        await api.check_others()
        grown = read_memory(api.pid, "VmHWM") - before
        answers = [await client.read_to_end() for client in clients]
        await eventually(is_whole)
    for client in clients:
        client.close()
    statuses = [answer.status for answer in answers]
    assert set(statuses) == {200, 429}
    assert sum(answer.status == 200 and len(answer.data) < LARGE for answer in answers) >= HELD
    assert statuses.count(429) >= CLIENTS // 2
    refused = next(answer for answer in answers if answer.status == 429)
    assert call_id in refused.error["message"]
    assert grown < ROOM, f"{grown >> 20} MiB"
