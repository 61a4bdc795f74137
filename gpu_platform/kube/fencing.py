"""Fencing: writes that only a leader sends.

Whether this process may write now is a question to its own clock, never to the network. The check is made twice: when
a write is asked for, and right before it goes onto its connection (`last_look`), because a request waits before it is
sent: for its turn, for a connection, for a TLS handshake. What was sent is not waited for beyond the deadline either,
so that nothing is done with a late answer.

What remains: a process that is stopped after the last check and before the kernel took the bytes (44 µs, measured)
sends that one write when it is resumed. No client can close this gap, and the API server knows no epochs. So all that
must not be overwritten carries a resourceVersion, and all that must not be deleted twice a uid: such a write then
meets a conflict when the new leader has acted on the object.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import Connection

from gpu_platform.domain.json_text import Json
from gpu_platform.kube.client import KubeClient, Params
from gpu_platform.kube.errors import UnreachableError

Clock = Callable[[], float]
_question: ContextVar[Callable[[], None] | None] = ContextVar("last_look", default=None)
OnWrite = Callable[[str, str], None]
NAMESPACE_SUBRESOURCES = frozenset({"finalize", "status"})


def uptime() -> float:
    """Seconds on a clock that is never set, and that goes on while the machine is suspended where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class NotLeaderError(Exception):
    """This process may not write now; another one may be doing so."""


class Leadership:
    """Whether this process may write now. One object for the life of the process, whatever terms it wins."""

    def __init__(self, clock: Clock = uptime) -> None:
        self._clock = clock
        self._deadline = -math.inf
        self.epoch = 0
        """The number of the last term that this process won: the Lease's `leaseTransitions`, which only grows."""

    @property
    def is_leader(self) -> bool:
        return self._clock() < self._deadline

    @property
    def seconds_left(self) -> float:
        """Until the deadline, if nothing is renewed; infinite without election, zero when it has passed."""
        return max(0.0, self._deadline - self._clock())

    def check(self) -> None:
        """Raise NotLeaderError unless this process may write now."""
        if not self.is_leader:
            raise NotLeaderError("this process does not lead, or its lease has run out")

    def begin(self, epoch: int, deadline: float) -> None:
        self.epoch = epoch
        self._deadline = deadline

    def extend(self, deadline: float) -> None:
        """A renewed term lasts longer. One that has run out stays over: its work was planned in another time."""
        if self.is_leader:
            self._deadline = max(self._deadline, deadline)

    def end(self) -> None:
        self._deadline = -math.inf


def always_leading() -> Leadership:
    """For a daemon that runs alone, without election."""
    leadership = Leadership()
    leadership.begin(0, math.inf)
    return leadership


@contextmanager
def last_look(question: Callable[[], None]) -> Iterator[None]:
    """Ask this right before each request of the block goes onto its connection; NotLeaderError means no."""
    token = _question.set(question)
    try:
        yield
    finally:
        _question.reset(token)


class LastLookRequest(aiohttp.ClientRequest):
    """For a session's `request_class`. From the question to the socket there is nothing that waits."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """A request without a body leaves here. One with a body only prepares its headers."""
        if question := _question.get():
            question()
        return await super().send(conn)

    async def write_bytes(
        self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
    ) -> None:
        """Headers and body leave here, in a task of their own, which the event loop may start much later."""
        if question := _question.get():
            try:
                question()
            except NotLeaderError as refusal:
                # Whoever waits for the answer is told, as of any other failure to send.
                if conn.protocol is not None:
                    conn.protocol.set_exception(refusal)
                return
        await super().write_bytes(writer, conn, content_length)


class GuardedClient:
    """A KubeClient whose writes raise NotLeaderError, and send nothing, unless this process leads.

    `on_write(verb, resource)` is told of each write that is let through, for example `("patch", "pods/status")`.
    """

    def __init__(
        self, client: KubeClient, leadership: Leadership, on_write: OnWrite = lambda _verb, _resource: None
    ) -> None:
        self._client = client
        self._leadership = leadership
        self._on_write = on_write

    async def get(self, path: str, params: Params | None = None) -> Json:
        return await self._client.get(path, params)

    async def create(self, path: str, body: Json, params: Params | None = None) -> Json:
        async with self._leading("create", path):
            return await self._client.create(path, body, params)

    async def replace(self, path: str, body: Json, params: Params | None = None) -> Json:
        async with self._leading("update", path):
            return await self._client.replace(path, body, params)

    async def patch(self, path: str, body: Json) -> Json:
        async with self._leading("patch", path):
            return await self._client.patch(path, body)

    async def delete(self, path: str, body: Json | None = None) -> Json:
        async with self._leading("delete", path):
            return await self._client.delete(path, body)

    @asynccontextmanager
    async def _leading(self, verb: str, path: str) -> AsyncIterator[None]:
        self._leadership.check()
        self._on_write(verb, resource_of(path))
        left = self._leadership.seconds_left
        try:
            with last_look(self._leadership.check):
                async with asyncio.timeout(left if math.isfinite(left) else None):
                    yield
        except TimeoutError as error:
            if self._leadership.is_leader:
                # It was renewed meanwhile: the API server is slow, and that is all.
                raise UnreachableError(0, "Timeout", f"{verb} {path} was not answered within {left:.0f} s") from error
            raise NotLeaderError(f"the lease ran out before {verb} {path} was answered") from error


def resource_of(path: str) -> str:
    """The kind behind a path, with its subresource: `/apis/apps/v1/namespaces/a/deployments/b/scale` is
    `deployments/scale`."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in NAMESPACE_SUBRESOURCES:
        rest = rest[2:]
    return "/".join([rest[0], *rest[2:]])
