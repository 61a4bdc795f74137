"""How full the functions' queues and the records are. Asked for often, so an answer counts for a moment."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gpu_platform.nats.listing import Figures, Listing
from platform_api.functions.health import QueueCount
from platform_api.http.errors import unavailable
from platform_api.invocations.errors import queue_full
from platform_api.nats_connection import QueueLink
from platform_api.single_flight import SharedTasks

GOOD_SECONDS = 1.0

FILL_SECONDS = 5.0
FILL_LIMIT = 0.9
"""Of the room for records. The rest is for the ends of the calls that were accepted."""

SCARCE_FILL = 0.75
"""Above it, only tenants with few records add to them: one tenant alone does not take the room of all."""

_Place = tuple[str, str]


@dataclass
class _Known:
    figures: Figures
    at: float
    added: int = 0
    """By this process since then, or about to be."""


class QueueCounts:
    """Implements `QueueFigures` of the functions."""

    def __init__(self, link: QueueLink, clock: Callable[[], float] = time.monotonic) -> None:
        self._link = link
        self._clock = clock
        self._known: dict[_Place, _Known] = {}
        self._asking: SharedTasks[_Place, _Known] = SharedTasks()
        self._arriving: Counter[_Place] = Counter()

    async def count(self, tenant: str, function: str) -> QueueCount:
        figures = await self._read(tenant, function)
        return QueueCount(waiting=figures.waiting, running=figures.running)

    @asynccontextmanager
    async def room(self, tenant: str, function: str, limit: int) -> AsyncIterator[None]:
        """429 where one more would be too many. Several processes together may let in a few more.

        Until the block ends, NATS may not have the call yet: it is counted beside what NATS says.
        """
        known = await self._look(tenant, function)
        if known.figures.total + known.added >= limit:
            raise queue_full(function, limit)
        known.added += 1
        place = (tenant, function)
        self._arriving[place] += 1
        try:
            yield
        finally:
            self._arriving[place] -= 1
            if not self._arriving[place]:
                del self._arriving[place]

    def give_back_room(self, tenant: str, function: str) -> None:
        """It was not needed."""
        known = self._known.get((tenant, function))
        if known is not None and known.added:
            known.added -= 1

    async def _look(self, tenant: str, function: str) -> _Known:
        place = (tenant, function)
        known = self._known.get(place)
        if known is None or self._clock() - known.at > GOOD_SECONDS:
            known = await self._asking.join(place, lambda: self._renew(place))
        return known

    async def _renew(self, place: _Place) -> _Known:
        now, arriving = self._clock(), self._arriving[place]
        figures = await self._read(*place)
        self._known = {other: known for other, known in self._known.items() if now - known.at <= GOOD_SECONDS}
        known = self._known[place] = _Known(figures, now, arriving)
        return known

    async def _read(self, tenant: str, function: str) -> Figures:
        # Before anybody takes its calls, nobody counts them either.
        return await Listing(self._link.js).count(tenant, function) or Figures(waiting=0, running=0)


class RecordRoom:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._fill = 0.0
        self._at: float | None = None

    @property
    def is_scarce(self) -> bool:
        """As the last check saw it."""
        return self._fill > SCARCE_FILL

    async def check(self, listing: Listing) -> None:
        """503 where a new call could leave no room for the end of another."""
        now = self._clock()
        if self._at is None or now - self._at > FILL_SECONDS:
            # One asks; who comes meanwhile goes by what was known.
            self._at = now
            self._fill = await listing.read_fill()
        if self._fill > FILL_LIMIT:
            raise unavailable("there is no room for more calls just now; nothing was accepted")
