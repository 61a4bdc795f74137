"""The room for invocations: how full the functions' queues and the records are, and what one tenant may take of both.

Asked for often, so an answer of NATS counts for a moment.
"""

import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gpu_platform.domain.limits import TenantLimits
from gpu_platform.nats.listing import Listing, TenantUsage
from gpu_platform.nats.streams import Backlog, read_backlog
from gpu_platform.nats.subjects import CHUNK_BYTES
from platform_api.functions.views import QueueCount
from platform_api.http.errors import ApiError, unavailable
from platform_api.nats_connection import QueueLink
from platform_api.single_flight import SharedTasks

PATH = "/api/v1/serverless/invocations"

FULL_SECONDS = 5
"""A queue that is full will not be empty in a moment."""

GOOD_SECONDS = 1.0
FILL_SECONDS = 5.0

FILL_LIMIT = 0.9
"""Of the room for records. The rest is for the ends of the calls that were accepted."""

SCARCE_FILL = 0.75
"""Above it, only tenants with few records add to them: one tenant alone does not take the room of all."""

_Place = tuple[str, str]

USAGE_SECONDS = 5.0
"""How long a measurement counts, together with what this process added since."""

REFUSED_SECONDS = 1.0
"""How old it may be where an invocation is refused by it."""

SCARCE_RECORDS = 5_000
"""Each may have an inline payload, headers and a result: so many of the largest are an eighth of the stream."""

NOTHING = TenantUsage(records=0, body_bytes=0)
ONE_RECORD = TenantUsage(records=1, body_bytes=0)


def queue_full(function: str, limit: int) -> ApiError:
    message = f"{limit} calls of the function {function!r} wait or run, which is its queueLimit; try again later"
    return ApiError(429, "queue_full", message, headers={"Retry-After": str(FULL_SECONDS)})


def too_many_records(used: int, limit: int) -> ApiError:
    message = (
        f"the tenant has {used} invocations, and its limit invocationRecords is {limit}; delete invocations that are "
        f"over (DELETE {PATH}/{{invocationID}}), or wait until their retention ends"
    )
    return ApiError(429, "too_many_invocations", message, headers={"Retry-After": str(FULL_SECONDS)})


def too_many_records_while_scarce(used: int, limit: int) -> ApiError:
    message = (
        f"the tenant has {used} invocations; room for records is scarce, and tenants with {limit} or more cannot add "
        f"any; delete invocations that are over (DELETE {PATH}/{{invocationID}}), or wait until their retention ends"
    )
    return ApiError(429, "too_many_invocations", message, headers={"Retry-After": str(FULL_SECONDS)})


def too_many_bytes(used: int, asked: int, limit: int) -> ApiError:
    addition = f", this payload would add {asked}" if asked else ""
    message = (
        f"the payloads and results of the tenant's invocations take {used} bytes{addition}, and its limit "
        f"invocationBytes is {limit}; delete invocations that are over (DELETE {PATH}/{{invocationID}}), cancel those "
        "that wait, or wait until their retention ends"
    )
    return ApiError(429, "too_many_invocation_bytes", message, headers={"Retry-After": str(FULL_SECONDS)})


@dataclass
class _KnownCount:
    figures: Backlog
    at: float
    added: int = 0
    """By this process since then, or about to be."""


class QueueCounts:
    """Implements `QueueFigures` of the functions."""

    def __init__(self, link: QueueLink, clock: Callable[[], float] = time.monotonic) -> None:
        self._link = link
        self._clock = clock
        self._known: dict[_Place, _KnownCount] = {}
        self._asking: SharedTasks[_Place, _KnownCount] = SharedTasks()
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
        if known.figures.calls + known.added >= limit:
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

    async def _look(self, tenant: str, function: str) -> _KnownCount:
        place = (tenant, function)
        known = self._known.get(place)
        if known is None or self._clock() - known.at > GOOD_SECONDS:
            known = await self._asking.join(place, lambda: self._renew(place))
        return known

    async def _renew(self, place: _Place) -> _KnownCount:
        now, arriving = self._clock(), self._arriving[place]
        figures = await self._read(*place)
        self._known = {other: known for other, known in self._known.items() if now - known.at <= GOOD_SECONDS}
        known = self._known[place] = _KnownCount(figures, now, arriving)
        return known

    async def _read(self, tenant: str, function: str) -> Backlog:
        # Before anybody takes its calls, nobody counts them either.
        return await read_backlog(self._link.js, tenant, function) or Backlog(waiting=0, running=0)


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


def usage_of_body(size: int) -> TenantUsage:
    """What a body of so many bytes takes, as `Listing.measure_tenant` counts it."""
    return TenantUsage(records=0, body_bytes=-(-size // CHUNK_BYTES) * CHUNK_BYTES)


def find_refusal(
    limits: TenantLimits, used: TenantUsage, asked: TenantUsage, *, is_scarce: bool = False
) -> ApiError | None:
    """Decides whether a tenant that uses this may take what is asked. `is_scarce`: the records of all tenants together
    leave little room.

    | records with it                   | bytes of bodies with it | what is asked | decision                        |
    | --------------------------------- | ----------------------- | ------------- | ------------------------------- |
    | over the limit                    | any                     | a record      | 429 `too_many_invocations`      |
    | scarce, and over `SCARCE_RECORDS` | any                     | a record      | 429 `too_many_invocations`      |
    | any                               | over the limit          | any           | 429 `too_many_invocation_bytes` |
    | any other                         | any other               | any           | None                            |

    A record is refused also where the bytes of earlier results are over the limit: its own result would add to them.
    """
    total = used + asked
    if asked.records and total.records > limits.invocation_records:
        return too_many_records(used.records, limits.invocation_records)
    if asked.records and is_scarce and total.records > SCARCE_RECORDS:
        return too_many_records_while_scarce(used.records, SCARCE_RECORDS)
    if total.body_bytes > limits.invocation_bytes:
        return too_many_bytes(used.body_bytes, asked.body_bytes, limits.invocation_bytes)
    return None


@dataclass
class _KnownUsage:
    usage: TenantUsage
    """As it was measured, with what this process has added since or is about to add."""

    at: float


class TenantRoom:
    """Several API processes do not see what the others accepted in the last `USAGE_SECONDS`: together they may exceed a
    limit by that much. Results of invocations that wait or run are stored also beyond the limit."""

    def __init__(self, limits_of: Callable[[str], TenantLimits], clock: Callable[[], float] = time.monotonic) -> None:
        self._limits_of = limits_of
        self._clock = clock
        self._known: dict[str, _KnownUsage] = {}
        self._asking: SharedTasks[str, _KnownUsage] = SharedTasks()
        self._arriving: defaultdict[str, TenantUsage] = defaultdict(lambda: NOTHING)

    @asynccontextmanager
    async def hold(
        self, listing: Listing, tenant: str, asked: TenantUsage, *, is_scarce: bool = False
    ) -> AsyncIterator[None]:
        """Holds room for what the block stores; 429 where the tenant has none.

        Until the block ends, NATS may not have it yet: it is counted beside what NATS says.
        """
        limits = self._limits_of(tenant)
        known = await self._look(listing, tenant, USAGE_SECONDS)
        if find_refusal(limits, known.usage, asked, is_scarce=is_scarce):
            known = await self._look(listing, tenant, REFUSED_SECONDS)
            if refusal := find_refusal(limits, known.usage, asked, is_scarce=is_scarce):
                raise refusal
        known.usage += asked
        self._arriving[tenant] += asked
        try:
            yield
        except BaseException:
            self.give_back(tenant, asked)
            raise
        finally:
            self._arriving[tenant] -= asked
            if self._arriving[tenant] == NOTHING:
                del self._arriving[tenant]

    def give_back(self, tenant: str, held: TenantUsage) -> None:
        """Nothing was stored in it."""
        if known := self._known.get(tenant):
            known.usage -= held

    def measure_again(self, tenant: str) -> None:
        """For the tenant's next invocation: something was deleted."""
        self._known.pop(tenant, None)

    async def _look(self, listing: Listing, tenant: str, good_seconds: float) -> _KnownUsage:
        known = self._known.get(tenant)
        if known is None or self._clock() - known.at > good_seconds:
            known = await self._asking.join(tenant, lambda: self._measure(listing, tenant))
        return known

    async def _measure(self, listing: Listing, tenant: str) -> _KnownUsage:
        now, arriving = self._clock(), self._arriving[tenant]
        usage = await listing.measure_tenant(tenant)
        self._known = {other: known for other, known in self._known.items() if now - known.at <= USAGE_SECONDS}
        known = self._known[tenant] = _KnownUsage(usage + arriving, now)
        return known
