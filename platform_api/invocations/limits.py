"""The room for invocations: how full the functions' queues and the records are, and what one tenant may take of both.

Asked for often, so an answer of NATS counts for a moment.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from gpu_platform.domain.tenant_limits import TenantLimits
from gpu_platform.nats.listing import Listing, TenantUsage
from gpu_platform.nats.streams import Backlog, read_backlog
from gpu_platform.nats.subjects import CHUNK_BYTES
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

Key = TypeVar("Key", bound=Hashable)
Amount = TypeVar("Amount", int, TenantUsage)

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
class _Known(Generic[Amount]):
    amount: Amount
    """As NATS said, with what this process has added since or is about to add."""

    at: float


class _Amounts(Generic[Key, Amount]):
    """What NATS says of each key, asked for once in a while, and what this process adds meanwhile."""

    def __init__(self, nothing: Amount, good_seconds: float, clock: Callable[[], float]) -> None:
        self._nothing: Amount = nothing
        self._good_seconds = good_seconds
        self._clock = clock
        self._known: dict[Key, _Known[Amount]] = {}
        self._asking: SharedTasks[Key, _Known[Amount]] = SharedTasks()
        self._arriving: dict[Key, Amount] = {}

    async def look(
        self, key: Key, measure: Callable[[], Awaitable[Amount]], good_seconds: float | None = None
    ) -> _Known[Amount]:
        known = self._known.get(key)
        if known is None or self._clock() - known.at > (good_seconds or self._good_seconds):
            known = await self._asking.join(key, lambda: self._measure(key, measure))
        return known

    @contextmanager
    def adding(self, key: Key, known: _Known[Amount], amount: Amount) -> Iterator[None]:
        """Until the block ends, NATS may not have it yet: it is counted beside what NATS says."""
        known.amount += amount
        self._arriving[key] = self._arriving.get(key, self._nothing) + amount
        try:
            yield
        finally:
            self._arriving[key] -= amount
            if self._arriving[key] == self._nothing:
                del self._arriving[key]

    def give_back(self, key: Key, amount: Amount) -> None:
        """It was not needed: nothing was stored. Only inside the block of `adding`: a measurement that began after it
        does not count this amount."""
        if known := self._known.get(key):
            known.amount -= amount

    def forget(self, key: Key) -> None:
        self._known.pop(key, None)

    async def _measure(self, key: Key, measure: Callable[[], Awaitable[Amount]]) -> _Known[Amount]:
        now, arriving = self._clock(), self._arriving.get(key, self._nothing)
        amount = await measure()
        self._known = {other: known for other, known in self._known.items() if now - known.at <= self._good_seconds}
        known = self._known[key] = _Known(amount + arriving, now)
        return known


class QueueCounts:
    def __init__(self, link: QueueLink, clock: Callable[[], float] = time.monotonic) -> None:
        self._link = link
        self._calls: _Amounts[tuple[str, str], int] = _Amounts(0, GOOD_SECONDS, clock)

    async def read(self, tenant: str, function: str) -> Backlog:
        # Before anybody takes its calls, nobody counts them either.
        return await read_backlog(self._link.js, tenant, function) or Backlog(waiting=0, running=0)

    @asynccontextmanager
    async def room(self, tenant: str, function: str, limit: int) -> AsyncIterator[None]:
        """429 where one more would be too many. Several processes together may let in a few more."""

        async def count() -> int:
            return (await self.read(tenant, function)).calls

        known = await self._calls.look((tenant, function), count)
        if known.amount >= limit:
            raise queue_full(function, limit)
        with self._calls.adding((tenant, function), known, 1):
            yield

    def give_back_room(self, tenant: str, function: str) -> None:
        self._calls.give_back((tenant, function), 1)


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


class TenantRoom:
    """Several API processes do not see what the others accepted in the last `USAGE_SECONDS`: together they may exceed a
    limit by that much. Results of invocations that wait or run are stored also beyond the limit."""

    def __init__(self, limits_of: Callable[[str], TenantLimits], clock: Callable[[], float] = time.monotonic) -> None:
        self._limits_of = limits_of
        self._usage: _Amounts[str, TenantUsage] = _Amounts(NOTHING, USAGE_SECONDS, clock)

    @asynccontextmanager
    async def hold(
        self, listing: Listing, tenant: str, asked: TenantUsage, *, is_scarce: bool = False
    ) -> AsyncIterator[None]:
        """Holds room for what the block stores; 429 where the tenant has none."""
        limits, measure = self._limits_of(tenant), partial(listing.measure_tenant, tenant)
        known = await self._usage.look(tenant, measure)
        if find_refusal(limits, known.amount, asked, is_scarce=is_scarce):
            known = await self._usage.look(tenant, measure, REFUSED_SECONDS)
            if refusal := find_refusal(limits, known.amount, asked, is_scarce=is_scarce):
                raise refusal
        with self._usage.adding(tenant, known, asked):
            try:
                yield
            except BaseException:
                self.give_back(tenant, asked)
                raise

    def give_back(self, tenant: str, held: TenantUsage) -> None:
        """Nothing was stored in it."""
        self._usage.give_back(tenant, held)

    def measure_again(self, tenant: str) -> None:
        """For the tenant's next invocation: something was deleted."""
        self._usage.forget(tenant)
