"""List, then watch, for ever: the level-triggered source behind every loop.

A consumer sees each object as `ADDED`, `MODIFIED` or `DELETED`, and `SYNCED` after every full list, so that
it can drop what it still holds and the list no longer named.

A watch goes on where the last one ended, over as many connections as it takes. The world is listed again only
when the server has forgotten that place (410), when it refuses the watch, and once per `resync`.
"""

import asyncio
import logging
import math
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from gpu_platform.adapters.backoff import Backoff
from gpu_platform.adapters.kube.answers import parse_answer
from gpu_platform.kube.client import KubeClient
from gpu_platform.kube.errors import GoneError, KubeError, UnreachableError, error_from_status
from gpu_platform.kube.requests import list_pages

log = logging.getLogger(__name__)

Json = dict[str, Any]

PAGE = 500
"""Objects per answer of a list, as in kubectl: a page arrives well within a call's time limit."""


@dataclass(frozen=True)
class WatchTiming:
    resync: timedelta = timedelta(minutes=5)
    """How often everything is listed again, in case an event was lost in a way that was not foreseen."""

    life: timedelta = timedelta(seconds=30)
    """How long the server keeps one watch open, at least.

    On a quiet watch the server sends a bookmark once a minute (59.5 to 60.7 s were measured), which is too rare to
    find a dead connection and to catch up within 75 s. The end that we ask for comes for certain, mostly with a
    bookmark in the 2 s before it.
    """


DEFAULT_TIMING = WatchTiming()

LIFE_SPREAD = 4 / 3
"""The longest life of a watch, as a multiple of the shortest. Each is drawn, so that watches do not end together."""

SILENCE_MARGIN = 5.0
"""Seconds that the announced end of a watch may be late before its connection counts as dead."""

SHORTEST_WATCH = 0.5
"""Seconds. A watch that ends sooner counts as a failure, or a confused server would be asked without a pause."""

RETRY = Backoff(first=0.2, longest=5.0)
"""An API server that restarts is found again in well under a second; one that is away is not stormed."""


@dataclass(frozen=True)
class WatchEvent:
    type: Literal["ADDED", "MODIFIED", "DELETED", "SYNCED"]
    object: Json
    listed: bool = False
    """Whether the object comes from a list. What a consumer holds and no listed event named before `SYNCED` is
    gone; objects seen in a watch do not count, because their deletion may be what was missed."""


async def list_and_watch(
    client: KubeClient,
    path: str,
    selectors: Mapping[str, str] | None = None,
    *,
    timing: WatchTiming = DEFAULT_TIMING,
    on_contact: Callable[[], None] = lambda: None,
) -> AsyncGenerator[WatchEvent, None]:
    """Yield the state of every object under `path` and then its changes; survives any API-server restart.

    `on_contact` is called whenever the server said anything at all, also when there is nothing to yield.
    """
    stream = _Stream(client, path, dict(selectors or {}), timing, on_contact)
    while True:
        try:
            items, version = await stream.list()
        except KubeError as error:
            await stream.pause(error)
            continue
        for item in items:
            yield WatchEvent("ADDED", item, listed=True)
        yield WatchEvent("SYNCED", {})
        async with aclosing(stream.follow(version)) as events:
            async for event in events:
                yield event


class _Stream:
    def __init__(
        self,
        client: KubeClient,
        path: str,
        selectors: Mapping[str, str],
        timing: WatchTiming,
        on_contact: Callable[[], None],
    ) -> None:
        self._client = client
        self._path = path
        self._selectors = selectors
        self._resync = timing.resync.total_seconds()
        self._life = timing.life.total_seconds()
        self._on_contact = on_contact
        self._failures = 0

    async def list(self) -> tuple[list[Json], str]:
        """Every object, and the version at which they were so.

        Without a resourceVersion the answer is consistent: it contains every write that was acknowledged before.
        All pages or none, because half a list that is read again would name objects deleted in between.
        """
        items: list[Json] = []
        async for page in list_pages(self._client, self._path, self._selectors, PAGE):
            self._on_contact()
            items += page.get("items") or []
        return _with_kind(items, page), page["metadata"]["resourceVersion"]

    async def follow(self, version: str) -> AsyncGenerator[WatchEvent, None]:
        """The changes since that version; ends when everything must be listed again."""
        clock = asyncio.get_running_loop().time
        list_again_at = clock() + self._resync
        while (left := list_again_at - clock()) > 0:
            started_at = clock()
            try:
                async with aclosing(self._watch(version, left)) as events:
                    async for event in events:
                        version = event["object"]["metadata"]["resourceVersion"]
                        self._failures = 0
                        if event["type"] != "BOOKMARK":
                            yield WatchEvent(event["type"], event["object"])
                if clock() - started_at < SHORTEST_WATCH:
                    raise UnreachableError(0, "TooShort", f"the watch of {self._path} ended at once")
                self._failures = 0
            except UnreachableError as error:
                await self.pause(error)
            except KubeError as error:
                # 410: the server no longer knows that version. Anything else: whatever the server objects to, a
                # fresh list shows whether it is still so.
                await self.pause(error)
                return

    async def pause(self, error: KubeError) -> None:
        self._failures += 1
        level = logging.WARNING if self._failures == 1 and not isinstance(error, GoneError) else logging.DEBUG
        log.log(level, "watch.interrupted", extra={"path": self._path, "error": str(error)})
        await asyncio.sleep(RETRY.delay(self._failures))

    async def _watch(self, version: str, at_most: float) -> AsyncGenerator[Json, None]:
        """What one connection says, until the server ends it."""
        life = math.ceil(min(random.uniform(self._life, self._life * LIFE_SPREAD), at_most))
        params = {
            **self._selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(life),
        }
        silence = life + SILENCE_MARGIN
        async with aclosing(self._client.lines(self._path, params, silence=silence)) as lines:
            async for line in lines:
                self._on_contact()
                yield parse_event(line)
        self._on_contact()


def parse_event(line: bytes) -> Json:
    """One line of a watch; whatever the server says instead of an event is raised."""
    try:
        event: Json = parse_answer(line)
    except ValueError as error:
        raise UnreachableError(0, "BrokenLine", f"the watch ended within a line: {error}") from error
    if event["type"] == "ERROR":
        raise error_from_status(int(event["object"].get("code", 500)), event["object"])
    return event


def _with_kind(items: list[Json], answer: Json) -> list[Json]:
    """The items of a list do not say what they are, those of a watch do; the consumer need not care."""
    kind, version = str(answer.get("kind", "")).removesuffix("List"), answer.get("apiVersion")
    return [{"apiVersion": version, "kind": kind, **item} for item in items]
