"""Connections of clients: which ones a deadline closes, and which ones it leaves alone."""

import asyncio

import pytest

from tests.support.raw_http import SMALL_BUFFER, build_head, open_raw
from tests.support.waiting import eventually
from tests.unit.platform_api.proxy.running_proxy import (
    LARGE,
    LARGE_BYTES,
    PREFIX,
    Platform,
    answer_echo,
    hang,
    listening,
    platform,
    read_head,
)
from tests.unit.platform_api.proxy.test_upstream import UPGRADE, shake_hands

SHORT = 1.0
"""Seconds that a client may take. Long enough for a busy machine between a connection and its first byte."""


async def count_connections(door: Platform, wanted: int) -> None:
    async def are_open() -> bool:
        return door.metrics.registry.get_sample_value("gpu_platform_api_connections") == wanted

    await eventually(are_open)


@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunks"])
async def test_a_slow_body_for_a_unit_is_not_cut(is_chunked: bool) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        body = await (reader.readuntil(b"0\r\n\r\n") if is_chunked else reader.readexactly(3))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % body.count(b"x"))

    framing = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: 3"
    async with asyncio.timeout(30), listening(echo) as port, platform(port, client_seconds=SHORT) as door:
        reader, writer = await door.connect()
        writer.write(f"POST {PREFIX}/ HTTP/1.1\r\nHost: x\r\n".encode() + framing + b"\r\n\r\n")
        for _ in range(3):
            writer.write(b"1\r\nx\r\n" if is_chunked else b"x")
            await asyncio.sleep(SHORT / 2)
        writer.write(b"0\r\n\r\n" if is_chunked else b"")
        line, headers = await read_head(reader)
        assert (line, await reader.readexactly(1)) == ("HTTP/1.1 200 OK", b"3")
        assert "connection" not in headers
        writer.close()


async def test_a_slow_answer_of_a_unit_is_not_cut() -> None:
    async def speak_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n")
        for _ in range(3):
            await asyncio.sleep(SHORT / 2)
            writer.write(b"x")

    async with asyncio.timeout(30), listening(speak_slowly) as port, platform(port, client_seconds=SHORT) as door:
        reader, writer = await hang(door)
        assert (await read_head(reader))[0] == "HTTP/1.1 200 OK"
        assert await reader.readexactly(3) == b"xxx"
        writer.close()


async def test_a_client_that_does_not_read_is_cut_and_one_that_pauses_the_answer_of_a_unit_is_not() -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LARGE_BYTES + bytes(LARGE_BYTES))
        await writer.drain()

    async with asyncio.timeout(120), listening(speak) as port, platform(port, client_seconds=SHORT) as door:
        url = f"http://127.0.0.1:{door.port}"
        pausing, stalling = [await open_raw(url, receive_buffer=SMALL_BUFFER) for _ in range(2)]
        await pausing.send(build_head(f"GET {PREFIX}/", "Connection: close"))
        await door.holds(1)
        await stalling.send(build_head(f"GET {LARGE}") * 2)
        await eventually(lambda: count_stalled(door, 1))
        cut = await stalling.read_to_end()
        assert (cut.status, len(cut.data) < LARGE_BYTES) == (200, True)
        assert len((await pausing.read_to_end()).data) > LARGE_BYTES
        assert await count_stalled(door, 1)
        stalling.close()
        pausing.close()


async def count_stalled(door: Platform, wanted: int) -> bool:
    labels = {"reason": "answer_timeout"}
    return door.metrics.registry.get_sample_value("gpu_platform_api_connections_refused_total", labels) == wanted


async def test_a_silent_websocket_is_not_cut_and_not_counted() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        writer.write(await reader.readexactly(5))

    async with asyncio.timeout(30), listening(echo) as port, platform(port, client_seconds=SHORT) as door:
        reader, writer = await hang(door, UPGRADE)
        await read_head(reader)
        await count_connections(door, 0)
        await asyncio.sleep(1.5 * SHORT)
        writer.write(b"alive")
        assert await reader.readexactly(13) == b"welcome alive"
        writer.close()


@pytest.mark.parametrize("data", [b"", b"GET / HT"], ids=["silent", "half a head"])
async def test_a_connection_without_a_head_is_closed(data: bytes) -> None:
    async with asyncio.timeout(30), listening(answer_echo) as port, platform(port, client_seconds=SHORT) as door:
        reader, writer = await door.connect()
        writer.write(data)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 408 ") if data else answer == b""
        writer.close()
        await count_connections(door, 0)


async def test_an_idle_connection_is_kept_and_the_next_head_has_a_deadline() -> None:
    async with asyncio.timeout(30), listening(answer_echo) as port, platform(port, client_seconds=SHORT) as door:
        reader, writer = await hang(door)
        _, headers = await read_head(reader)
        await reader.readexactly(int(headers["content-length"]))
        await asyncio.sleep(1.5 * SHORT)
        writer.write(b"GET")
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()


async def test_a_second_request_after_a_whole_body_uses_the_same_connection() -> None:
    async with asyncio.timeout(30), listening(answer_echo) as port, platform(port) as door:
        reader, writer = await door.connect()
        request = f"POST {PREFIX}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody".encode()
        # The second one is there before the first one is answered.
        writer.write(request * 2)
        for _ in range(2):
            line, headers = await read_head(reader)
            assert (line, headers.get("connection")) == ("HTTP/1.1 200 OK", None)
            assert (await reader.readexactly(int(headers["content-length"]))).endswith(b"body")
        writer.close()


async def test_a_fault_in_the_middle_of_a_body_ends_the_request_at_the_unit() -> None:
    broken = asyncio.Event()

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del writer
        await reader.read()
        broken.set()

    async with asyncio.timeout(30), listening(read) as port, platform(port) as door:
        reader, writer = await door.connect()
        writer.write(f"POST {PREFIX}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        writer.write(b"1\r\nx\r\n")
        await door.holds(1)
        writer.write(b"no size\r\n")
        line, headers = await read_head(reader)
        assert (line, headers["connection"]) == ("HTTP/1.1 400 Bad Request", "close")
        await broken.wait()
        writer.close()
        await door.ended("caller_gone")


async def test_an_early_answer_of_a_unit_closes_the_connection_after_it() -> None:
    async def answer_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nearly")

    async with asyncio.timeout(30), listening(answer_early) as port, platform(port) as door:
        reader, writer = await door.connect()
        writer.write(f"POST {PREFIX}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx".encode())
        line, headers = await read_head(reader)
        assert (line, headers["connection"]) == ("HTTP/1.1 200 OK", "close")
        assert await reader.read() == b"early"
        writer.close()
        await count_connections(door, 0)


async def test_a_client_that_waits_for_consent_is_answered_and_closed() -> None:
    async with asyncio.timeout(30), listening(answer_echo) as port, platform(port) as door:
        reader, writer = await door.connect()
        writer.write(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\nExpect: 100-continue\r\n\r\n")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"connection: close" in answer
        writer.close()
