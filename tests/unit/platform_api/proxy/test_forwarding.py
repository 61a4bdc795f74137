"""A call on its way: what the unit gets, what the caller gets, and how it ends."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from gpu_platform.devcluster.credentials import ensure_certificates, key_pair
from tests.unit.platform_api.proxy.running_proxy import (
    BODY_LIMIT,
    PREFIX,
    answer_echo,
    hang,
    listening,
    platform,
    read_head,
)

MEGABYTE = 1 << 20


async def answer_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    del writer
    await read_head(reader)
    await reader.read()


def error_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_the_unit_gets_the_request_as_it_was_made(method: str) -> None:
    async with listening(answer_echo) as port, platform(port) as door, door.client() as client:
        answer = await client.request(method, "/a%2Fb/c?d=e%20f&g", content=b"hello", headers={"X-Own": "1"})
    line, _, rest = answer.text.partition("\r\n")
    assert line == f"{method} /a%2Fb/c?d=e%20f&g HTTP/1.1"
    assert "x-own: 1\r\n" in rest.lower()
    assert "host: unit-web:8000\r\n" in rest.lower()
    assert f"x-forwarded-prefix: {PREFIX}\r\n" in rest.lower()
    assert rest.endswith("\r\n\r\nhello")


async def test_a_head_has_the_length_and_no_body() -> None:
    async with listening(answer_echo) as port, platform(port) as door, door.client() as client:
        answer = await client.head("/")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


async def test_dots_in_the_path_are_the_units_to_understand() -> None:
    async with listening(answer_echo) as port, platform(port) as door:
        reader, writer = await door.connect()
        writer.write(
            f"GET {PREFIX}/a/../../../other/proxy/http/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        )
        seen = (await reader.read()).decode()
        writer.close()
    assert "GET /a/../../../other/proxy/http/ HTTP/1.1" in seen


async def test_a_redirect_and_its_cookies_are_the_callers_to_follow() -> None:
    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(
            b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere.example/\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
            b"X-Frame-Options: SAMEORIGIN\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-Request-ID: theirs\r\n"
            b"Content-Length: 0\r\n\r\n"
        )

    async with listening(redirect) as port, platform(port) as door, door.client() as client:
        answer = await client.get("/", headers={"X-Request-ID": "ours"})
    assert (answer.status_code, answer.headers["location"]) == (302, "http://elsewhere.example/")
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert answer.headers.get_list("x-frame-options") == ["SAMEORIGIN"]
    assert answer.headers.get_list("x-request-id") == ["ours"]
    assert len(answer.headers.get_list("date")) == 1
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "x-hop" not in answer.headers


async def test_an_answer_comes_part_by_part_and_not_at_its_end() -> None:
    go_on = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await go_on.wait()
        writer.write(b"data: 2\n\n")

    async with (
        asyncio.timeout(20),
        listening(drip) as port,
        platform(port) as door,
        door.client() as client,
        client.stream("GET", "/") as answer,
    ):
        parts = answer.aiter_raw()
        assert await anext(parts) == b"data: 1\n\n"
        go_on.set()
        assert await anext(parts) == b"data: 2\n\n"
        assert [part async for part in parts] == []
    await door.ended("answered")


async def test_a_body_of_any_size_goes_up_while_the_answer_comes_down() -> None:
    """Both are longer than anything that is held on the way, so neither could wait for the other's end."""

    async def mirror(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, headers = await read_head(reader)
        left = int(headers["content-length"])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % left)
        while left:
            data = await reader.read(65_536)
            left -= len(data)
            writer.write(data)
            await writer.drain()

    size = 32 * MEGABYTE
    async with asyncio.timeout(60), listening(mirror) as port, platform(port) as door:
        reader, writer = await door.connect()
        writer.write(f"POST {PREFIX}/ HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode())

        async def send() -> None:
            for _ in range(size // MEGABYTE):
                writer.write(b"x" * MEGABYTE)
                await writer.drain()

        sending = asyncio.create_task(send())
        line, headers = await read_head(reader)
        assert (line, int(headers["content-length"])) == ("HTTP/1.1 200 OK", size)
        assert len(await reader.readexactly(size)) == size
        await sending
        writer.close()


async def test_a_unit_that_does_not_read_holds_its_caller_back() -> None:
    is_over = asyncio.Event()

    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del reader, writer
        await is_over.wait()

    async def pour(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"x" * MEGABYTE)
            await writer.drain()

    async with listening(ignore) as port, platform(port) as door:
        _, writer = await door.connect()
        writer.write(f"POST {PREFIX}/ HTTP/1.1\r\nHost: x\r\nContent-Length: {1 << 40}\r\n\r\n".encode())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pour(writer), 1)
        writer.transport.abort()
        is_over.set()
        await door.holds(0)


async def test_a_body_in_chunks_stays_one() -> None:
    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, headers = await read_head(reader)
        body = await reader.readuntil(b"0\r\n\r\n")
        said = f"{headers.get('transfer-encoding')} {body.count(b'x')}".encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said))

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(2):
            yield b"x" * BODY_LIMIT

    async with listening(count) as port, platform(port) as door, door.client() as client:
        answer = await client.post("/", content=parts())
    assert answer.text == f"chunked {2 * BODY_LIMIT}"


async def test_an_answer_before_the_bodys_end_is_passed_on() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    async with listening(refuse) as port, platform(port) as door, door.client() as client:
        answer = await client.post("/", content=b"x" * MEGABYTE)
    assert answer.status_code == 413


async def test_nothing_at_the_port_is_a_502_that_says_so() -> None:
    async with listening(answer_echo) as port:
        pass
    async with platform(port) as door, door.client() as client:
        answer = await client.get("/")
    assert error_of(answer) == (502, "bad_gateway")
    assert answer.json()["error"]["message"] == f"the unit 'web' does not answer: port {port} refused the connection"
    assert "127.0.0.1" not in answer.text
    assert door.count_of("unreachable") == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (b"", "it hung up without an answer of HTTP"),
        (b"HTTP/1.1 200", "it hung up without an answer of HTTP"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "it hung up without an answer of HTTP"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "its answer is not one of HTTP"),
        (b"HTTP/1.1 700 No\r\n\r\n", "700 is no status that can be passed on"),
    ],
)
async def test_what_is_no_answer_is_a_502_that_says_why(words: bytes, why: str) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(words)

    async with listening(speak) as port, platform(port) as door, door.client() as client:
        answer = await client.get("/")
    assert error_of(answer) == (502, "bad_gateway")
    assert f"the unit 'web' broke off before its answer: {why}" in answer.json()["error"]["message"]
    assert door.count_of("broken") == 1


async def test_an_answer_that_breaks_off_does_not_look_whole() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")

    async with listening(half) as port, platform(port) as door, door.client() as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get("/")
        await door.ended("broken")


async def test_a_unit_that_says_nothing_is_a_504_after_a_while() -> None:
    async with listening(answer_nothing) as port, platform(port, idle_seconds=0.2) as door, door.client() as client:
        answer = await client.get("/")
    assert error_of(answer) == (504, "gateway_timeout")
    assert door.count_of("idle") == 1


@pytest.mark.parametrize("answers", [False, True], ids=["before the answer", "in the answer"])
async def test_a_caller_who_hangs_up_is_gone_for_the_unit_too(answers: bool) -> None:
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        if answers:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\nfirst")
        arrived.set()
        try:
            await reader.read()
        finally:
            gone.set()

    async with asyncio.timeout(20), listening(wait) as port, platform(port) as door:
        reader, writer = await hang(door)
        await arrived.wait()
        if answers:
            await read_head(reader)
        writer.close()
        await gone.wait()
        await door.ended("caller_gone")


async def test_a_call_ends_with_its_key() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        await reader.read()

    async with asyncio.timeout(20), listening(drip) as port, platform(port) as door:
        reader, writer = await hang(door)
        await reader.readuntil(b"hello\r\n")
        door.keys.clear()
        assert not (await reader.read()).endswith(b"0\r\n\r\n")
        writer.close()
        await door.ended("key_revoked")


async def test_a_call_whose_key_ends_before_the_answer_is_a_401() -> None:
    async with asyncio.timeout(20), listening(answer_nothing) as port, platform(port) as door, door.client() as client:
        door.keys.clear()
        assert error_of(await client.get("/")) == (401, "unauthenticated")


async def test_more_calls_than_a_tenants_share_are_a_429() -> None:
    async with listening(answer_nothing) as port, platform(port, limit=8) as door, door.client() as client:
        open_ones = [await hang(door) for _ in range(2)]
        await door.holds(2)
        answer = await client.get("/")
        assert error_of(answer) == (429, "too_many_requests")
        assert answer.headers["retry-after"] == "1"
        for _, writer in open_ones:
            writer.close()


async def test_a_unit_is_told_what_its_callers_speak_with_whoever_stands_in_front_of_the_api() -> None:
    async with listening(answer_echo) as port, platform(port, public_scheme="https") as door, door.client() as client:
        assert "x-forwarded-proto: https" in (await client.get("/")).text
    async with listening(answer_echo) as port, platform(port) as door, door.client() as client:
        assert "x-forwarded-proto: http\r\n" in (await client.get("/")).text


async def answer_in_plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def test_a_unit_that_speaks_tls_is_spoken_to_in_tls(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ensure_certificates(tmp_path, datetime.now(UTC))
    pair = key_pair(tmp_path, "server")
    context.load_cert_chain(pair.certificate, pair.key)
    async with listening(answer_echo, context) as port, platform(port, is_tls=True) as door, door.client() as client:
        assert (await client.get("/over-tls")).text.startswith("GET /over-tls")


async def test_https_to_a_port_that_speaks_plain_http_says_so() -> None:
    async with listening(answer_in_plain) as port, platform(port, is_tls=True) as door, door.client() as client:
        answer = await client.get("/")
    assert error_of(answer) == (502, "bad_gateway")
    assert answer.json()["error"]["message"] == (
        f"the unit 'web' does not answer: the TLS handshake on port {port} failed (WRONG_VERSION_NUMBER); "
        "access.scheme is https: set it to http if the port speaks plain HTTP"
    )
