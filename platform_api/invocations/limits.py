"""The room that a tenant's invocations may take in JetStream, and what they take of it."""

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gpu_platform.domain.tenant_limits import TenantLimits
from gpu_platform.nats.listing import Listing, TenantUsage
from gpu_platform.nats.subjects import CHUNK_BYTES
from platform_api.http.errors import ApiError
from platform_api.invocations.errors import too_many_bytes, too_many_records, too_many_records_while_scarce
from platform_api.single_flight import SharedTasks

GOOD_SECONDS = 5.0
"""How long a measurement counts, together with what this process added since."""

REFUSED_SECONDS = 1.0
"""How old it may be where an invocation is refused by it."""

SCARCE_RECORDS = 5_000
"""Each may have an inline payload, headers and a result: so many of the largest are an eighth of the stream."""

NOTHING = TenantUsage(records=0, body_bytes=0)
ONE_RECORD = TenantUsage(records=1, body_bytes=0)


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
class _Known:
    usage: TenantUsage
    """As it was measured, with what this process has added since or is about to add."""

    at: float


class TenantRoom:
    """Several API processes do not see what the others accepted in the last `GOOD_SECONDS`: together they may exceed a
    limit by that much. Results of invocations that wait or run are stored also beyond the limit."""

    def __init__(self, limits_of: Callable[[str], TenantLimits], clock: Callable[[], float] = time.monotonic) -> None:
        self._limits_of = limits_of
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._asking: SharedTasks[str, _Known] = SharedTasks()
        self._arriving: defaultdict[str, TenantUsage] = defaultdict(lambda: NOTHING)

    @asynccontextmanager
    async def hold(
        self, listing: Listing, tenant: str, asked: TenantUsage, *, is_scarce: bool = False
    ) -> AsyncIterator[None]:
        """Holds room for what the block stores; 429 where the tenant has none.

        Until the block ends, NATS may not have it yet: it is counted beside what NATS says.
        """
        limits = self._limits_of(tenant)
        known = await self._look(listing, tenant, GOOD_SECONDS)
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

    async def _look(self, listing: Listing, tenant: str, good_seconds: float) -> _Known:
        known = self._known.get(tenant)
        if known is None or self._clock() - known.at > good_seconds:
            known = await self._asking.join(tenant, lambda: self._measure(listing, tenant))
        return known

    async def _measure(self, listing: Listing, tenant: str) -> _Known:
        now, arriving = self._clock(), self._arriving[tenant]
        usage = await listing.measure_tenant(tenant)
        self._known = {other: known for other, known in self._known.items() if now - known.at <= GOOD_SECONDS}
        known = self._known[tenant] = _Known(usage + arriving, now)
        return known
