"""The sidecar's own door: questions of the kubelet, answered in one line each."""

import asyncio
import http
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

READ_SECONDS = 5.0
HEADER_LIMIT = 100

Answer = Callable[[], Awaitable[bool]]
"""Whether all is well. It may take its time."""


@asynccontextmanager
async def served(answers: Mapping[str, Answer], host: str, port: int) -> AsyncIterator[int]:
    """GET on these paths, until the end of the block; the port, for one that was asked for any."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            try:
                async with asyncio.timeout(READ_SECONDS):
                    method, path = await _read_request(reader)
                writer.write(await _answer(answers, method, path))
                await writer.drain()
            finally:
                writer.close()

    server = await asyncio.start_server(handle, host, port)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        # Whoever still waits for an answer is not waited for.
        server.close()


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, str]:
    method, target, _ = (await reader.readuntil(b"\r\n")).decode("latin-1").split(" ", 2)
    for _ in range(HEADER_LIMIT):
        if await reader.readuntil(b"\r\n") == b"\r\n":
            return method, target.partition("?")[0]
    raise ValueError("too many headers")


async def _answer(answers: Mapping[str, Answer], method: str, path: str) -> bytes:
    if path not in answers:
        status = http.HTTPStatus.NOT_FOUND
    elif method != "GET":
        status = http.HTTPStatus.METHOD_NOT_ALLOWED
    else:
        status = http.HTTPStatus.OK if await answers[path]() else http.HTTPStatus.SERVICE_UNAVAILABLE
    body = f"{status.phrase.lower()}\n".encode()
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
