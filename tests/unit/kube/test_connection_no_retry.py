"""A write that may have been carried out is not sent again behind its sender's back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from gpu_platform.kube.connection import no_retry

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@asynccontextmanager
async def server_that_drops_every_second_request(seen: list[str]) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            seen.append(head.decode().split(" ", 1)[0])
            if len(seen) == 2:
                break
            writer.write(ANSWER)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_a_write_whose_connection_breaks_is_sent_once_and_its_sender_told(method: str) -> None:
    seen: list[str] = []
    async with (
        server_that_drops_every_second_request(seen) as url,
        aiohttp.ClientSession(middlewares=(no_retry,)) as session,
    ):
        await (await session.get(url)).read()
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.request(method, url)
    assert seen == ["GET", method]


async def test_a_read_may_be_sent_again() -> None:
    seen: list[str] = []
    async with (
        server_that_drops_every_second_request(seen) as url,
        aiohttp.ClientSession(middlewares=(no_retry,)) as session,
    ):
        await (await session.get(url)).read()
        assert (await session.get(url)).status == 200
    assert seen == ["GET", "GET", "GET"]
