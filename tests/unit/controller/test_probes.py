"""Readiness names what is not ready; a listener of probes answers within its bounds."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

import httpx
import pytest

from gpu_platform.controller.probes import (
    CONNECTION_LIMIT,
    CannotListenError,
    build_metrics_answers,
    build_probe_answers,
    find_unready,
    served,
)
from gpu_platform.kube.informer import ObjectCache

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Cache:
    name: str
    is_synced: bool
    seconds_since_contact: float


@pytest.mark.parametrize(
    ("caches", "unready"),
    [
        ([], ()),
        ([Cache("pods", True, 44.0)], ()),
        ([Cache("pods", False, float("inf"))], ("pods: not listed yet",)),
        (
            [Cache("pods", True, 1.0), Cache("gpuunits", True, 83.4)],
            ("gpuunits: the API server has been silent for 83 s",),
        ),
    ],
)
def test_what_is_not_ready_and_why(caches: list[Cache], unready: tuple[str, ...]) -> None:
    assert find_unready(cast(list[ObjectCache], caches)) == unready


@asynccontextmanager
async def probes(*reasons: str, connection_seconds: float = 60.0) -> AsyncIterator[str]:
    answers = build_probe_answers(lambda: reasons)
    async with served(answers, "127.0.0.1:0", "probeAddress", connection_seconds=connection_seconds) as address:
        yield address


async def open_stream(address: str) -> Stream:
    host, _, port = address.partition(":")
    return await asyncio.open_connection(host, int(port))


async def ask(address: str, path: str, method: str = "GET") -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.request(method, f"http://{address}{path}")


async def test_probes_are_answered_with_the_reasons() -> None:
    async with probes() as address:
        assert [(await ask(address, path)).text for path in ("/healthz", "/readyz?verbose")] == ["ok\n", "ok\n"]
    async with probes("pods: not listed yet", "no keys") as address:
        answer = await ask(address, "/readyz")
        assert (answer.status_code, answer.text) == (503, "pods: not listed yet\nno keys\n")
        assert (await ask(address, "/healthz")).status_code == 200


async def test_metrics_are_rendered_for_each_scrape() -> None:
    figures = iter((b"first 1\n", b"second 2\n"))
    async with served(build_metrics_answers(lambda: next(figures)), "127.0.0.1:0", "metricsAddress") as address:
        answers = [await ask(address, "/metrics") for _ in range(2)]
    assert [answer.text for answer in answers] == ["first 1\n", "second 2\n"]
    assert answers[0].headers["Content-Type"].startswith("text/plain")


async def test_nothing_else_is_answered() -> None:
    async with probes() as address:
        assert (await ask(address, "/metrics")).status_code == 404
        assert (await ask(address, "/healthz", "POST")).status_code == 405


async def test_a_page_whose_name_was_pointed_to_this_machine_reads_nothing() -> None:
    async with probes() as address, httpx.AsyncClient(trust_env=False) as client:
        for host in ("evil.example:9405", "[", ""):
            answer = await client.get(f"http://{address}/readyz", headers={"Host": host})
            assert answer.status_code in (400, 421), host
        for host in ("localhost:1", "127.0.0.1", "[::1]:2"):
            assert (await client.get(f"http://{address}/readyz", headers={"Host": host})).status_code == 200, host


async def test_a_listener_for_other_machines_answers_under_every_name() -> None:
    async with served(build_probe_answers(tuple), "0.0.0.0:0", "probeAddress") as address:
        port = address.partition(":")[2]
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"http://127.0.0.1:{port}/readyz", headers={"Host": "api.runtime-system:9406"})
    assert (address, answer.status_code) == (f"0.0.0.0:{port}", 200)


async def test_each_connection_serves_one_request() -> None:
    async with probes() as address:
        reader, writer = await open_stream(address)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
        answer = await reader.read()
        writer.close()
    assert (answer.count(b"HTTP/1.1 200 OK"), answer.count(b"Connection: close")) == (1, 1)


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost:"], ids=["nothing", "half a head"])
async def test_a_connection_without_a_whole_request_is_closed_at_its_deadline(sent: bytes) -> None:
    async with probes(connection_seconds=0.2) as address:
        reader, writer = await open_stream(address)
        writer.write(sent)
        assert await read_to_end(reader) == b""
        writer.close()


async def test_one_connection_more_than_allowed_closes_the_oldest() -> None:
    async with probes() as address:
        streams = [await open_stream(address) for _ in range(CONNECTION_LIMIT)]
        assert (await ask(address, "/healthz")).status_code == 200
        [(oldest, _), *_, (_, newest)] = streams
        assert await read_to_end(oldest) == b""
        newest.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await streams[-1][0].read()).startswith(b"HTTP/1.1 200 OK")
        for _, writer in streams:
            writer.close()


async def test_open_connections_do_not_keep_the_process_from_ending() -> None:
    async with probes() as address:
        reader, writer = await open_stream(address)
    assert await read_to_end(reader) == b""
    writer.close()


async def test_an_address_that_is_taken_is_named_with_its_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(CannotListenError) as refused:
            async with served({}, address, "probeAddress"):
                pass
    assert str(refused.value) == f"cannot listen on {address}: Address already in use; choose another probeAddress"


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    """What comes until the connection is closed, also where it is reset."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
