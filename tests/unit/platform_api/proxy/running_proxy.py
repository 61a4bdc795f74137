"""A platform that passes every call on to one server of the test: real sockets on both sides, no cluster."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from ssl import SSLContext

import httpx
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response

from platform_api.app import _answer_error
from platform_api.auth.keys import EVERYBODY
from platform_api.http.capacity import Connections
from platform_api.http.connections import build_protocol
from platform_api.http.errors import ApiError
from platform_api.http.middleware import Frame
from platform_api.metrics import ApiMetrics
from platform_api.process import _listen
from platform_api.proxy.endpoints import METHODS
from platform_api.proxy.forwarding import Forwarder
from platform_api.proxy.pod_address import Target
from tests.support.waiting import eventually

PREFIX = "/api/v1/gpu-units/web/proxy/http"
LARGE, LARGE_BYTES = "/large", 8 << 20
"""An answer of the platform itself."""

BODY_LIMIT = 1_000
CLIENT_SECONDS = 10

Speak = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Platform:
    port: int
    metrics: ApiMetrics
    keys: list[str] = field(default_factory=lambda: ["good"])
    """The call goes on while there is one."""

    def count_of(self, outcome: str) -> float:
        labels = {"outcome": outcome}
        return self.metrics.registry.get_sample_value("gpu_platform_api_proxied_total", labels) or 0.0

    async def ended(self, outcome: str) -> None:
        """Waits until one call has ended so, and nothing of it is left."""

        async def is_over() -> bool:
            return self.count_of(outcome) == 1

        await eventually(is_over)
        await self.holds(0)

    async def holds(self, calls: int) -> None:
        async def are_open() -> bool:
            return self.metrics.registry.get_sample_value("gpu_platform_api_proxied_open") == calls

        await eventually(are_open)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}{PREFIX}", trust_env=False, timeout=20)


@asynccontextmanager
async def listening(speak: Speak, context: SSLContext | None = None) -> AsyncIterator[int]:
    """The port of a server that does this with every connection, and then hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await speak(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def platform(
    port: int,
    *,
    limit: int = 100,
    idle_seconds: float = 20,
    is_tls: bool = False,
    public_scheme: str | None = None,
    client_seconds: float = CLIENT_SECONDS,
) -> AsyncIterator[Platform]:
    metrics = ApiMetrics()
    target = Target("the unit 'web'", "127.0.0.1", port, "unit-web:8000", is_tls)
    forwarder = Forwarder(limit, idle_seconds, metrics, public_scheme=public_scheme)
    listener = _listen("127.0.0.1:0")
    listener.listen()
    made = Platform(listener.getsockname()[1], metrics)

    async def find() -> Target:
        return target

    async def call(request: Request) -> Response:
        return await forwarder.forward(request, EVERYBODY, find(), PREFIX, lambda: bool(made.keys))

    app = FastAPI()
    app.add_api_route(f"{PREFIX}/{{path:path}}", call, methods=list(METHODS))
    app.add_api_route(LARGE, lambda: Response(bytes(LARGE_BYTES)))
    app.add_exception_handler(ApiError, _answer_error)
    framed = Frame(
        app,
        body_limit=BODY_LIMIT,
        in_flight_limit=100,
        client_seconds=client_seconds,
        tenant_of=lambda _: EVERYBODY.tenant,
        metrics=metrics,
        passed_on=re.compile(PREFIX),
    )
    protocol = build_protocol(Connections(100, metrics), client_seconds)
    config = uvicorn.Config(framed, http=protocol, log_config=None, access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve(sockets=[listener]))
    try:
        yield made
    finally:
        server.should_exit = True
        server.force_exit = True
        await serving
        listener.close()


async def read_head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    """The first line, and the headers."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
    return lines[0], {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:]) if name}


async def hang(door: Platform, headers: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A call that nobody has waited for yet."""
    reader, writer = await door.connect()
    writer.write(f"GET {PREFIX}/ HTTP/1.1\r\nHost: x\r\n".encode() + headers + b"\r\n")
    return reader, writer


async def answer_echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers with the request as it came."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(match[1]) if (match := re.search(rb"content-length: (\d+)", head)) else 0
    body = head + await reader.readexactly(length)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    await writer.drain()
