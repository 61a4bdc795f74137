"""Answers without an end: how many there may be, how long they may go on, and how they are sent."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, MutableMapping
from typing import Any

from fastapi.responses import StreamingResponse

from gpu_platform.domain.json_text import Json
from platform_api.http.capacity import share_of
from platform_api.http.connections import OWN_DEADLINE
from platform_api.http.errors import too_many
from platform_api.metrics import ApiMetrics

EVENT_STREAM = "text/event-stream"
RETRY_SECONDS = 5

FIRST_PART_SECONDS = 1.0
"""How long an answer without an opening waits for its first part. Longer than Kubernetes takes to refuse."""

LOOK_SECONDS = 2.0
"""How often a stream asks whether its caller may still listen, also while it has nothing to say."""


def build_event(name: str, event_id: str | None, data: Json) -> bytes:
    """A server-sent event. Without an id it does not move the place from which its caller goes on."""
    lines = [f"id: {event_id}"] if event_id else []
    lines += [f"event: {name}", f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}"]
    return ("\n".join(lines) + "\n\n").encode()


class Streams:
    """Counts the open ones; each holds a connection to Kubernetes."""

    def __init__(self, limit: int, metrics: ApiMetrics) -> None:
        self._limit = limit
        self._open: Counter[str] = Counter()
        self._metrics = metrics

    async def respond(
        self,
        parts: AsyncGenerator[bytes, None],
        media_type: str,
        tenant: str,
        may_listen: Callable[[], bool],
        *,
        has_opening: bool = False,
    ) -> StreamingResponse:
        """Begins when the first part is there, so that whatever is wrong from the start is still an error. A stream
        without an opening, such as the log of a silent unit, begins after a moment without one. One that has an
        opening (a list) sends it or fails in bounded time, so that it is waited for."""
        if self._is_full(tenant):
            await parts.aclose()
            raise too_many("too many streams are open here; close one, or try again later", RETRY_SECONDS)
        self._count(tenant, 1)
        stream = _Parts(parts, may_listen, lambda: self._count(tenant, -1))
        try:
            await stream.wait_first(None if has_opening else FIRST_PART_SECONDS)
        except BaseException:
            await stream.end()
            raise
        return _Stream(stream, media_type)

    def _is_full(self, tenant: str) -> bool:
        return self._open.total() >= self._limit or self._open[tenant] >= share_of(self._limit)

    def _count(self, tenant: str, change: int) -> None:
        self._open[tenant] += change
        self._metrics.streams.set(self._open.total())


class _Parts:
    """The parts of one stream; the next one is always asked for already."""

    def __init__(
        self, parts: AsyncGenerator[bytes, None], may_listen: Callable[[], bool], on_end: Callable[[], None]
    ) -> None:
        self._parts = parts
        self._may_listen = may_listen
        self._on_end = on_end
        self._next: asyncio.Future[bytes | None] = asyncio.ensure_future(anext(parts, None))

    async def wait_first(self, seconds: float | None) -> None:
        await asyncio.wait([self._next], timeout=seconds)
        if self._next.done():
            self._next.result()

    async def read(self) -> AsyncIterator[bytes]:
        while True:
            await asyncio.wait([self._next], timeout=LOOK_SECONDS)
            if not self._may_listen():
                return
            if not self._next.done():
                continue
            part = self._next.result()
            if part is None:
                return
            yield part
            self._next = asyncio.ensure_future(anext(self._parts, None))

    async def end(self) -> None:
        self._on_end()
        if not self._next.done():
            self._next.cancel()
            await asyncio.wait([self._next])
        await self._parts.aclose()


class _Stream(StreamingResponse):
    """Ends what it sends, also where nobody ever asked for the first part."""

    def __init__(self, parts: _Parts, media_type: str) -> None:
        super().__init__(parts.read(), media_type=media_type)
        self._parts = parts

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        # A caller may pause what it follows, as a pager does. Its tenant has a limited number of streams.
        scope["state"][OWN_DEADLINE] = True
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._parts.end()
