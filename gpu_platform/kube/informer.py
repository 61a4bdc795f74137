"""An informer: list, then watch, without end, into a cache in memory: read without a request, indexed, and told on
change. The level-triggered source behind every loop.

`list_and_watch` yields each object as `ADDED`, `MODIFIED` or `DELETED`, and `SYNCED` after every full list, so that
its consumer can drop what it still holds and the list no longer named. A watch goes on where the last one ended, over
as many connections as it takes. Everything is listed again only when the server has forgotten that place (410), when
it refuses the watch, and once per `resync`.

Controllers observe through the cache. It never writes, and it decides nothing.
"""

import asyncio
import logging
import math
import random
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from gpu_platform.clock import Backoff
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import key_of
from gpu_platform.kube.client import KubeClient, parse_answer
from gpu_platform.kube.errors import GoneError, KubeError, UnreachableError, error_from_status
from gpu_platform.kube.paths import ResourcePath
from gpu_platform.kube.requests import list_pages

log = logging.getLogger(__name__)

PAGE = 500
"""Objects per answer of a list, as in kubectl: a page arrives well within a call's time limit."""

LIFE_SPREAD = 4 / 3
"""The longest life of a watch, as a multiple of the shortest. Each is drawn, so that watches do not end together."""

SILENCE_MARGIN = 5.0
"""Seconds that the announced end of a watch may be late before its connection counts as dead."""

SHORTEST_WATCH = 0.5
"""Seconds. A watch that ends sooner counts as a failure, or a confused server would be asked without a pause."""

RETRY = Backoff(first=0.2, longest=5.0)
"""An API server that restarts is found again in well under a second; one that is away is not stormed."""

Handler = Callable[[Json | None, Json | None], None]
IndexFunction = Callable[[Json], Iterable[str]]

_Place = tuple[str, str]
"""Namespace ("" for a cluster-scoped kind) and name."""


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


@dataclass
class _Stream:
    client: KubeClient
    path: str
    selectors: Mapping[str, str]
    timing: WatchTiming
    on_contact: Callable[[], None]
    failures: int = 0
    """In a row."""

    async def list(self) -> tuple[list[Json], str]:
        """Every object, and the version at which they were so.

        Without a resourceVersion the answer is consistent: it contains every write that was acknowledged before.
        All pages or none, because half a list that is read again would name objects deleted in between.
        """
        items: list[Json] = []
        async for page in list_pages(self.client, self.path, self.selectors, PAGE):
            self.on_contact()
            items += page.get("items") or []
        return _with_kind(items, page), page["metadata"]["resourceVersion"]

    async def follow(self, version: str) -> AsyncGenerator[WatchEvent, None]:
        """The changes since that version; ends when everything must be listed again."""
        clock = asyncio.get_running_loop().time
        list_again_at = clock() + self.timing.resync.total_seconds()
        while (left := list_again_at - clock()) > 0:
            started_at = clock()
            try:
                async with aclosing(self._watch(version, left)) as events:
                    async for event in events:
                        version = event["object"]["metadata"]["resourceVersion"]
                        self.failures = 0
                        if event["type"] != "BOOKMARK":
                            yield WatchEvent(event["type"], event["object"])
                if clock() - started_at < SHORTEST_WATCH:
                    raise UnreachableError(0, "TooShort", f"the watch of {self.path} ended at once")
                self.failures = 0
            except UnreachableError as error:
                await self.pause(error)
            except KubeError as error:
                # 410: the server no longer knows that version. Anything else: whatever the server objects to, a
                # fresh list shows whether it is still so.
                await self.pause(error)
                return

    async def pause(self, error: KubeError) -> None:
        self.failures += 1
        level = logging.WARNING if self.failures == 1 and not isinstance(error, GoneError) else logging.DEBUG
        log.log(level, "watch.interrupted", extra={"path": self.path, "error": str(error)})
        await asyncio.sleep(RETRY.delay(self.failures))

    async def _watch(self, version: str, at_most: float) -> AsyncGenerator[Json, None]:
        """What one connection says, until the server ends it."""
        shortest = self.timing.life.total_seconds()
        life = math.ceil(min(random.uniform(shortest, shortest * LIFE_SPREAD), at_most))
        params = {
            **self.selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(life),
        }
        silence = life + SILENCE_MARGIN
        async with aclosing(self.client.lines(self.path, params, silence=silence)) as lines:
            async for line in lines:
                self.on_contact()
                yield parse_event(line)
        self.on_contact()


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


class ObjectCache:
    """All objects of one kind, in one namespace or (without one) in the whole cluster, as of the last event.

    The objects are handed out as they are, not as copies: they are **read-only**. Whoever wants to change one
    builds a new one (`copy.deepcopy`). They come without `metadata.managedFields`, which would be half of the
    memory, unless `with_managed_fields` asks for them.

    An index function must answer for every object that the API server accepts, and must not depend on anything
    but the object.
    """

    def __init__(
        self,
        client: KubeClient,
        path: ResourcePath,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        indexes: Mapping[str, IndexFunction] | None = None,
        timing: WatchTiming = DEFAULT_TIMING,
        with_managed_fields: bool = False,
        keep: Callable[[Json], Json] = lambda new: new,
    ) -> None:
        """`keep` returns what is kept of an object: at least namespace, name, uid and resourceVersion."""
        self._client = client
        self._keep = keep
        self._with_managed_fields = with_managed_fields
        self._path = path
        self._namespace = namespace
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._selectors = {name: selector for name, selector in selectors.items() if selector}
        self._functions = dict(indexes or {})
        self._timing = timing
        self._objects: dict[str, dict[str, Json]] = defaultdict(dict)
        self._indexed: dict[str, dict[str, dict[_Place, Json]]] = {name: {} for name in self._functions}
        self._handlers: list[Handler] = []
        self._listed: set[_Place] = set()
        self._synced = asyncio.Event()
        self._contact_at = -math.inf

    @property
    def name(self) -> str:
        """The kind's plural, for logs, probes and metrics."""
        return self._path.plural

    @property
    def is_synced(self) -> bool:
        """Whether everything has been listed once."""
        return self._synced.is_set()

    @property
    def seconds_since_contact(self) -> float:
        """How long the API server has said nothing, not even a bookmark; infinite before its first word."""
        return time.monotonic() - self._contact_at

    def __len__(self) -> int:
        return sum(map(len, self._objects.values()))

    def get(self, namespace: str | None, name: str) -> Json | None:
        return self._objects.get(namespace or "", {}).get(name)

    def objects(self, namespace: str | None = None) -> tuple[Json, ...]:
        """Those of one namespace, or (without one) all."""
        if namespace is not None:
            return tuple(self._objects.get(namespace, {}).values())
        return tuple(each for objects in self._objects.values() for each in objects.values())

    def count(self, namespace: str) -> int:
        return len(self._objects.get(namespace, ()))

    def by_index(self, index: str, value: str) -> tuple[Json, ...]:
        """The objects for which the index function names this value. Costs as much as it returns."""
        return tuple(self._indexed[index].get(value, {}).values())

    def on_change(self, handler: Handler) -> None:
        """Call `handler(old, new)` on every change, from now on, before the next event is looked at.

        A new object has no old one, a deleted one no new one; also when it was deleted while the API server was
        out of reach. After each full list every object is named again, with old == new when nothing changed.
        """
        self._handlers.append(handler)

    async def wait_synced(self) -> None:
        await self._synced.wait()

    async def run(self) -> None:
        """Follow the API server for ever."""
        stream = list_and_watch(
            self._client,
            self._path.collection(self._namespace),
            self._selectors,
            timing=self._timing,
            on_contact=self._note_contact,
        )
        async with aclosing(stream) as events:
            async for event in events:
                self._take(event)

    def _note_contact(self) -> None:
        self._contact_at = time.monotonic()

    def _take(self, event: WatchEvent) -> None:
        match event.type:
            case "ADDED" | "MODIFIED":
                self._put(event.object, listed=event.listed)
            case "DELETED":
                self._remove(event.object)
            case "SYNCED":
                self._drop_unlisted()
                self._synced.set()

    def _put(self, new: Json, *, listed: bool) -> None:
        place = key_of(new)
        old = self.get(*place)
        if listed:
            self._listed.add(place)
        if old is not None and _version_of(old) == _version_of(new):
            # The same state once more: news only to those who asked to hear everything again.
            if listed:
                self._tell(old, old)
            return
        if not self._with_managed_fields:
            new["metadata"].pop("managedFields", None)
        new = self._keep(new)
        self._replace(place, old, new)
        self._tell(old, new)

    def _remove(self, gone: Json) -> None:
        """Forget a deleted object, unless another one has its name by now."""
        place = key_of(gone)
        old = self.get(*place)
        if old is not None and old["metadata"]["uid"] == gone["metadata"]["uid"]:
            self._replace(place, old, None)
            self._tell(old, None)

    def _drop_unlisted(self) -> None:
        listed, self._listed = self._listed, set()
        for old in self.objects():
            if (place := key_of(old)) not in listed:
                self._replace(place, old, None)
                self._tell(old, None)

    def _replace(self, place: _Place, old: Json | None, new: Json | None) -> None:
        namespace, name = place
        if old is not None:
            for entries, value in self._entries_of(old):
                del entries[value][place]
                if not entries[value]:
                    del entries[value]
        if new is not None:
            self._objects[namespace][name] = new
            for entries, value in self._entries_of(new):
                entries.setdefault(value, {})[place] = new
        else:
            del self._objects[namespace][name]
            if not self._objects[namespace]:
                del self._objects[namespace]

    def _entries_of(self, each: Json) -> Iterator[tuple[dict[str, dict[_Place, Json]], str]]:
        for name, function in self._functions.items():
            # A function may name a value twice; the object is under it once.
            for value in set(function(each)):
                yield self._indexed[name], value

    def _tell(self, old: Json | None, new: Json | None) -> None:
        for handler in self._handlers:
            handler(old, new)


def _version_of(each: Json) -> tuple[str, str]:
    return each["metadata"]["uid"], each["metadata"]["resourceVersion"]
