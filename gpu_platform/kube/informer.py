"""What the API server holds of one kind, kept in memory: read without a request, indexed, and told on change.

Controllers observe through it. It never writes, and it decides nothing.
"""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from gpu_platform.adapters.kube.watch import DEFAULT_TIMING, WatchEvent, WatchTiming, list_and_watch
from gpu_platform.kube.client import KubeClient
from gpu_platform.kube.paths import ResourcePath

Json = dict[str, Any]
Handler = Callable[[Json | None, Json | None], None]
IndexFunction = Callable[[Json], Iterable[str]]

_Place = tuple[str, str]
"""Namespace ("" for a cluster-scoped kind) and name."""


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
        place = _place_of(new)
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
        place = _place_of(gone)
        old = self.get(*place)
        if old is not None and old["metadata"]["uid"] == gone["metadata"]["uid"]:
            self._replace(place, old, None)
            self._tell(old, None)

    def _drop_unlisted(self) -> None:
        listed, self._listed = self._listed, set()
        for old in self.objects():
            if (place := _place_of(old)) not in listed:
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


def _place_of(each: Json) -> _Place:
    return each["metadata"].get("namespace", ""), each["metadata"]["name"]


def _version_of(each: Json) -> tuple[str, str]:
    return each["metadata"]["uid"], each["metadata"]["resourceVersion"]
