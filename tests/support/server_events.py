"""Server-sent events as a browser reads them: an id counts once its block is complete."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from gpu_platform.domain.json_text import Json
from tests.support.waiting import PATIENCE_SECONDS


@dataclass(frozen=True)
class ServerEvent:
    name: str
    data: Json
    id: str | None
    """Of its own block; None where that has none."""


class EventStream:
    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self.last_id: str | None = None

    async def next(self, within: float = PATIENCE_SECONDS) -> ServerEvent | None:
        """The next event; None for a block that is none: a lone id, or a comment."""
        async with asyncio.timeout(within):
            fields: dict[str, str] = {}
            async for line in self._lines:
                if not line:
                    break
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
        self.last_id = fields.get("id", self.last_id)
        if "data" not in fields:
            return None
        return ServerEvent(fields["event"], json.loads(fields["data"]), fields.get("id"))

    async def until(
        self, is_wanted: Callable[[ServerEvent], bool], within: float = PATIENCE_SECONDS
    ) -> list[ServerEvent]:
        """All events up to and with the wanted one."""
        seen: list[ServerEvent] = []
        async with asyncio.timeout(within):
            while not (seen and is_wanted(seen[-1])):
                if (event := await self.next(within)) is not None:
                    seen.append(event)
        return seen

    async def until_id(self, within: float = PATIENCE_SECONDS) -> list[ServerEvent]:
        """All events up to the first id."""
        seen: list[ServerEvent] = []
        async with asyncio.timeout(within):
            while self.last_id is None:
                if (event := await self.next(within)) is not None:
                    seen.append(event)
        return seen


@asynccontextmanager
async def watching(
    api: httpx.AsyncClient, path: str, last_seen: str | None = None, **narrowed: str
) -> AsyncIterator[EventStream]:
    headers = {"Last-Event-ID": last_seen} if last_seen else {}
    timeout = httpx.Timeout(PATIENCE_SECONDS)
    params = {"watch": "true", **narrowed}
    async with api.stream("GET", path, params=params, headers=headers, timeout=timeout) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield EventStream(answer.aiter_lines())
