"""The limits of forwarded calls: how many there may be at once, in this process and of one tenant, and the deadline of
each: it goes on while its caller is there and allowed, and bytes move.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import StrEnum

from platform_api.http.capacity import share_of
from platform_api.http.errors import too_many, unavailable
from platform_api.metrics import ApiMetrics

LOOK_SECONDS = 2.0
"""How often a call asks whether its key is still good, as streams do."""


class Ending(StrEnum):
    """Why a call was cut."""

    IDLE = "idle"
    CALLER_GONE = "caller_gone"
    KEY_REVOKED = "key_revoked"


class CutError(Exception):
    """The call is over, whatever it was doing."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.value)
        self.ending = ending


class Lifeline:
    def __init__(self, idle_seconds: float, is_welcome: Callable[[], bool]) -> None:
        self._idle_seconds = idle_seconds
        self._is_welcome = is_welcome
        self._cut: Ending | None = None
        self._limit: asyncio.Timeout | None = None

    @asynccontextmanager
    async def bounded(self) -> AsyncIterator[None]:
        """Raises CutError out of whatever is waited for in the block."""
        if self._cut is not None:
            raise CutError(self._cut)
        limit = asyncio.timeout(self._idle_seconds)
        watch = asyncio.create_task(self._watch())
        try:
            async with limit:
                self._limit = limit
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise CutError(self._why()) from None
        finally:
            self._limit = None
            watch.cancel()

    def touch(self) -> None:
        """Something moved."""
        if self._cut is None:
            self._end_in(self._idle_seconds)

    def cut(self, ending: Ending) -> None:
        self._cut = self._cut or ending
        self._end_in(0)

    async def _watch(self) -> None:
        while True:
            if not self._is_welcome():
                self.cut(Ending.KEY_REVOKED)
                return
            await asyncio.sleep(LOOK_SECONDS)

    def _why(self) -> Ending:
        return self._cut or Ending.IDLE

    def _end_in(self, seconds: float) -> None:
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + seconds)


class Places:
    def __init__(self, limit: int, metrics: ApiMetrics) -> None:
        self._limit = limit
        self._taken: Counter[str] = Counter()
        self._metrics = metrics

    @contextmanager
    def one(self, tenant: str) -> Iterator[None]:
        """A place for as long as the block runs; a refusal when there is none."""
        if self._taken[tenant] >= share_of(self._limit):
            raise too_many("too many calls to this tenant's units are open; end one, or try again later")
        if self._taken.total() >= self._limit:
            raise unavailable("too many calls to units are open here")
        self._count(tenant, 1)
        try:
            yield
        finally:
            self._count(tenant, -1)

    def _count(self, tenant: str, change: int) -> None:
        self._taken[tenant] += change
        if not self._taken[tenant]:
            del self._taken[tenant]
        self._metrics.open_passages.set(self._taken.total())
