"""When the sidecar takes calls, and the listener on which the kubelet asks it and tells it to drain.

| told                | does                                                                                       |
| ------------------- | ------------------------------------------------------------------------------------------ |
| nothing             | takes calls whenever the framework is ready                                                |
| to drain            | takes no more, finishes those under way and says so; begins again with the next framework  |
| to stop (SIGTERM)   | takes no more, finishes those under way, ends                                              |

It is told to drain when the framework is about to be ended: with its pod, or because it is unhealthy.
"""

import asyncio
import http
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

from gpu_platform.clock import wait_at_most
from gpu_platform.nats.connection import JetStream, core_of
from serverless.sidecar.framework_client import FrameworkClient
from serverless.sidecar.worker import Worker

READ_SECONDS = 5.0
HEADER_LIMIT = 100

Answer = Callable[[], Awaitable[bool]]
"""Whether all is well. It may take its time."""

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.2


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


class Shifts:
    def __init__(self, framework: FrameworkClient, build_worker: Callable[[JetStream], Worker]) -> None:
        self._framework = framework
        self._build_worker = build_worker
        self._js: JetStream | None = None
        self._worker: Worker | None = None
        self._working: asyncio.Task[None] | None = None
        self._draining = False
        self._drained: tuple[int, int] | None = None
        """The framework that was there when the sidecar was told to drain."""

        self._over = asyncio.Event()
        self._over.set()
        self.stopping = asyncio.Event()

    async def run(self, js: JetStream) -> None:
        """Until `stop`, or until this connection is closed for good: calls under way wait for the next one."""
        self._js = js
        if self._worker is not None:
            self._worker.go_on_with(js)
        if self._working is None:
            self._working = asyncio.create_task(self._work_in_shifts())
        while not self._working.done() and not core_of(js).is_closed:
            # The client itself connects again. It gives up only where it is not let in any more, and tells nobody.
            await asyncio.wait({self._working}, timeout=LOOK_SECONDS)
        if self._working.done():
            self._working.result()

    @property
    def are_over(self) -> bool:
        return self._working.done() if self._working is not None else self.stopping.is_set()

    async def wait_until_over(self) -> None:
        await self.stopping.wait()
        if self._working is not None:
            await asyncio.wait({self._working})

    def stop(self) -> None:
        self.stopping.set()
        if self._worker is not None:
            self._worker.stop()

    async def drain(self) -> bool:
        """Ends when no call is under way any more."""
        log.info("sidecar.draining")
        self._draining, self._drained = True, self._framework.identity()
        if self._worker is not None:
            self._worker.stop()
        await self._over.wait()
        return True

    async def is_ready(self) -> bool:
        is_connected = self._js is not None and core_of(self._js).is_connected
        return is_connected and not self._draining and await self._framework.is_ready()

    async def _work_in_shifts(self) -> None:
        while not self.stopping.is_set():
            if not self._draining and self._js is not None:
                await self._work(self._js)
            await self._wait_for_the_next_framework()

    async def _work(self, js: JetStream) -> None:
        self._worker = self._build_worker(js)
        self._over.clear()
        try:
            await self._worker.run()
        finally:
            self._worker = None
            self._over.set()

    async def _wait_for_the_next_framework(self) -> None:
        while self._draining and not self.stopping.is_set():
            # One that is restarted between two looks was never seen away.
            if self._framework.identity() != self._drained or not await self._framework.is_ready():
                self._draining = False
            await wait_at_most(LOOK_SECONDS, self.stopping)
