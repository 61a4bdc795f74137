"""Clients that mean harm, on raw sockets: an honest tenant is answered meanwhile, and what they hold is bounded."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import pytest

from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient
from tests.support.api import UNITS, api_process, open_api, scrape, wait_ready
from tests.support.clusters import RunningCluster
from tests.support.raw_http import CHUNK_OF_ONE, LARGE_CHUNK, SMALL_BUFFER, RawAnswer, RawClient, build_head, open_raw
from tests.support.tenants import tenant, wait_key_known
from tests.support.waiting import NotYet, eventually

MIB = 1 << 20
FLOOD = 64 * MIB
"""What an attacker tries to send. The API discards at most 32 MiB, and the kernel's buffers take some more."""

SLOTS = 16
CLIENT_SECONDS = 2
CONNECTIONS = 64
SETTINGS = {
    "GPU_PLATFORM_API_MAX_REQUESTS_IN_FLIGHT": str(SLOTS),
    "GPU_PLATFORM_API_CLIENT_TIMEOUT_SECONDS": str(CLIENT_SECONDS),
    "GPU_PLATFORM_API_MAX_CONNECTIONS": str(CONNECTIONS),
}
BUNDLE = "/docs/assets/swagger-ui-bundle.js"
CHUNKED = ("Transfer-Encoding: chunked", "Content-Type: application/json")


@dataclass(frozen=True)
class Ground:
    """An API process with small limits, an honest tenant's client, and the key of a tenant that means harm."""

    url: str
    honest: httpx.AsyncClient
    key: str

    @property
    def authorization(self) -> str:
        return f"Authorization: Bearer {self.key}"

    async def count_refused(self, reason: str) -> int:
        text = await scrape(self.honest)
        prefix = f'gpu_platform_api_connections_refused_total{{reason="{reason}"}} '
        return next((int(float(line.removeprefix(prefix))) for line in text.splitlines() if line.startswith(prefix)), 0)


@pytest.fixture(scope="module")
async def ground(
    cluster: RunningCluster, kube: KubeClient, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Ground]:
    log: Path = tmp_path_factory.mktemp("attacked") / "log"
    async with (
        api_process(cluster.api_kubeconfig, log, SETTINGS) as (_, url),
        open_api(url, cluster.record.api_key, patience=0) as honest,
    ):
        await wait_ready(honest)
        await wait_key_known(honest)
        async with tenant(kube, url, Role.EDITOR) as harmful:
            yield Ground(url, honest, harmful.key)


@asynccontextmanager
async def honest_tenant(ground: Ground) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """A tenant who reads its units while the block runs, on new connections and on one that it keeps. Yields a function
    that waits until another read of each kind was answered."""
    statuses: list[int] = []

    async def wait_answers() -> None:
        wanted = len(statuses) + 4

        async def are_there() -> bool:
            return len(statuses) >= wanted or reading.done()

        await eventually(are_there)

    async def read_again_and_again() -> None:
        while True:
            statuses.append((await ground.honest.get(UNITS)).status_code)
            statuses.append((await ground.honest.get(UNITS, headers={"Connection": "close"})).status_code)

    reading = asyncio.create_task(read_again_and_again())
    try:
        yield wait_answers
    finally:
        reading.cancel()
        await asyncio.wait([reading])
    if not reading.cancelled():
        reading.result()
    assert set(statuses) == {200}


UNREAD = {
    "401": (401, "POST /api/v1/gpu-units", False),
    "404": (404, "POST /api/v1/nowhere", True),
    "405": (405, "PUT /api/v1/health", True),
    "413": (413, "POST /api/v1/gpu-units", True),
    "forwarded": (404, "POST /api/v1/gpu-units/missing/proxy/http/", True),
}


@pytest.mark.parametrize("part", [CHUNK_OF_ONE, LARGE_CHUNK], ids=["single bytes", "large chunks"])
@pytest.mark.parametrize("what", UNREAD)
async def test_an_unread_body_closes_the_connection_after_bounded_bytes(ground: Ground, what: str, part: bytes) -> None:
    status, line, has_key = UNREAD[what]
    answer = await flood(ground, build_head(line, *CHUNKED, *([ground.authorization] if has_key else [])), part)
    # A body in single bytes is refused for that if the route begins to read it.
    assert answer.status in ((status, 400) if part is CHUNK_OF_ONE else (status,))
    assert answer.headers["connection"] == "close"


async def test_a_body_that_is_announced_as_too_large_is_not_swallowed(ground: Ground) -> None:
    head = build_head(f"POST {UNITS}", ground.authorization, f"Content-Length: {1 << 30}")
    answer = await flood(ground, head, b"x")
    assert (answer.status, answer.headers["connection"]) == (413, "close")


async def flood(ground: Ground, head: bytes, part: bytes) -> RawAnswer:
    """Sends a body of these parts for as long as the API takes it, which must not be for all of it."""
    client = await open_raw(ground.url)
    async with honest_tenant(ground) as wait_answers:
        await client.send(head)
        reading = asyncio.create_task(client.read_to_end())
        sending = asyncio.create_task(client.flood(part, FLOOD))
        await wait_answers()
        assert await sending < FLOOD
        answer = await reading
    client.close()
    return answer


async def test_what_follows_an_unread_body_is_not_taken_for_a_request(ground: Ground) -> None:
    client = await open_raw(ground.url)
    smuggled = build_head("GET /api/v1/health")
    await client.send(build_head(f"POST {UNITS}", f"Content-Length: {len(smuggled) + 100}") + smuggled)
    await client.send(smuggled)
    answer = await client.read_to_end()
    client.close()
    assert (answer.status, answer.data.count(b"HTTP/1.1 ")) == (401, 1)


async def test_slow_bodies_hold_no_slots_of_others_and_are_refused(ground: Ground) -> None:
    """Of a tenant, more than its share; without a key, more than theirs; together more than all."""
    announced = ("Content-Length: 1000", "Content-Type: application/json")
    heads = [build_head(f"POST {UNITS}", *announced, ground.authorization)] * SLOTS
    heads += [build_head(f"POST {UNITS}", *announced)] * SLOTS
    clients = [await open_raw(ground.url) for _ in heads]
    async with honest_tenant(ground) as wait_answers:
        for client, head in zip(clients, heads, strict=True):
            await client.send(head + b"{")
        await wait_answers()
        statuses = [answer.status for answer in await trickle_until_closed(clients)]
    assert statuses.count(408) >= 1
    assert set(statuses) <= {401, 408, 429, 503}


async def test_half_a_head_is_not_waited_for(ground: Ground) -> None:
    before = await ground.count_refused("head_timeout")
    clients = [await open_raw(ground.url) for _ in range(SLOTS)]
    async with honest_tenant(ground) as wait_answers:
        for client in clients:
            await client.send(f"GET {UNITS} HTTP/1.1\r\nHost: x\r\nX-Slow: ".encode())
        await wait_answers()
        answers = await trickle_until_closed(clients)
    assert {(answer.status, answer.error["code"]) for answer in answers} == {(408, "request_timeout")}
    assert await ground.count_refused("head_timeout") == before + len(clients)


async def trickle_until_closed(clients: list[RawClient]) -> list[RawAnswer]:
    """Sends a byte on each connection several times per second until the server has closed all of them."""
    reading = [asyncio.create_task(client.read_to_end()) for client in clients]

    async def are_closed() -> bool | NotYet:
        for client, task in zip(clients, reading, strict=True):
            if not task.done():
                await client.send(b"x")
        closed = sum(task.done() for task in reading)
        return closed == len(reading) or NotYet(f"{closed} of {len(reading)} are closed")

    await eventually(are_closed, every=0.2)
    for client in clients:
        client.close()
    return [task.result() for task in reading]


async def test_idle_connections_make_room_for_others(ground: Ground) -> None:
    before = await ground.count_refused("limit")
    clients: list[RawClient] = []
    async with honest_tenant(ground) as wait_answers:
        for _ in range(3 * CONNECTIONS // 16):
            opened = [await open_raw(ground.url) for _ in range(16)]
            for client in opened:
                await client.send(build_head("GET /api/v1/health"))
            clients += opened
            await wait_answers()
        refused = await ground.count_refused("limit") - before
    for client in clients:
        client.close()
    assert refused > 0


async def test_a_body_in_tiny_chunks_is_refused(ground: Ground) -> None:
    client = await open_raw(ground.url)
    body = b"1\r\n{\r\n" + b"1\r\n \r\n" * 5_000
    await client.send(build_head(f"POST {UNITS}", *CHUNKED, ground.authorization) + body)
    answer = await client.read_to_end()
    client.close()
    assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert "send larger chunks" in answer.error["message"]


AMBIGUOUS = {
    "both lengths": build_head(f"POST {UNITS}", "Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "bare LF": b"GET /api/v1/health HTTP/1.1\nHost: x\n\n",
    "one bare LF": b"GET /api/v1/health HTTP/1.1\r\nHost: x\nX-A: b\r\n\r\n",
    "obs-fold": build_head("GET /api/v1/health", "X-A: b", " c"),
    "folded first header": b"GET /api/v1/health HTTP/1.1\r\n Host: x\r\n\r\n",
    "chunked in HTTP/1.0": b"POST /api/v1/health HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "long head": build_head("GET /api/v1/health", f"X-Long: {'x' * 20_000}"),
    "folded trailer": build_head(f"POST {UNITS}", *CHUNKED) + b"0\r\nX-A: b\r\n c\r\n\r\n",
}


@pytest.mark.parametrize("what", AMBIGUOUS)
async def test_ambiguous_framing_is_refused_and_the_connection_closed(ground: Ground, what: str) -> None:
    client = await open_raw(ground.url)
    await client.send(AMBIGUOUS[what] + build_head("GET /api/v1/health"))
    answer = await client.read_to_end()
    client.close()
    assert (answer.status, answer.error["code"]) == (400, "invalid_request")
    assert (answer.headers["connection"], answer.data.count(b"HTTP/1.1 ")) == ("close", 1)


async def test_slow_readers_without_a_key_do_not_keep_their_slots(cluster: RunningCluster, tmp_path: Path) -> None:
    """Each reads fast enough for every single write to end in time, and slower than an answer may be read in all."""
    settings = {**SETTINGS, "GPU_PLATFORM_API_CLIENT_TIMEOUT_SECONDS": "8"}
    async with (
        api_process(cluster.api_kubeconfig, tmp_path / "log", settings) as (_, url),
        open_api(url, None, patience=0) as stranger,
    ):
        await wait_ready(stranger)

        async def is_served(*, wanted: bool) -> bool:
            return ((await stranger.get("/api/v1/health")).status_code == 200) is wanted

        async def are_all_answered() -> bool:
            return all(client.is_answered for client in clients)

        whole = len((await stranger.get(BUNDLE)).content)
        clients = [await open_raw(url, receive_buffer=SMALL_BUFFER) for _ in range(SLOTS // 8)]
        reading = [asyncio.create_task(client.read_slowly(4 << 10, every=0.2)) for client in clients]
        for client in clients:
            await client.send(build_head(f"GET {BUNDLE}", "Connection: close"))
        # A request of ours before that could take the slot of one of them.
        await eventually(are_all_answered)
        await eventually(partial(is_served, wanted=False))
        answers = await asyncio.gather(*reading)
        await eventually(partial(is_served, wanted=True))
    for client in clients:
        client.close()
    assert {answer.status for answer in answers} == {200}
    assert max(len(answer.data) for answer in answers) < whole / 2
