"""Whether a tenant has room for one more invocation."""

from typing import Any, cast

import pytest

from gpu_platform.domain.tenant_limits import TenantLimits
from gpu_platform.nats.listing import Listing, TenantUsage
from gpu_platform.nats.subjects import CHUNK_BYTES
from platform_api.http.errors import ApiError
from platform_api.invocations.limits import (
    NOTHING,
    ONE_RECORD,
    REFUSED_SECONDS,
    SCARCE_RECORDS,
    USAGE_SECONDS,
    TenantRoom,
    find_refusal,
    usage_of_body,
)

LIMITS = TenantLimits(invocation_records=3, invocation_bytes=4 * CHUNK_BYTES)
BODY = usage_of_body(CHUNK_BYTES)


@pytest.mark.parametrize(
    ("used", "asked", "code"),
    [
        (NOTHING, ONE_RECORD, None),
        (TenantUsage(2, 0), ONE_RECORD, None),
        (TenantUsage(3, 0), ONE_RECORD, "too_many_invocations"),
        (TenantUsage(3, 0), BODY, None),
        (TenantUsage(0, 3 * CHUNK_BYTES), BODY, None),
        (TenantUsage(0, 3 * CHUNK_BYTES + 1), BODY, "too_many_invocation_bytes"),
        (TenantUsage(0, 4 * CHUNK_BYTES), ONE_RECORD, None),
        (TenantUsage(0, 5 * CHUNK_BYTES), ONE_RECORD, "too_many_invocation_bytes"),
    ],
    ids=["empty", "last", "no record", "body of a held record", "last body", "no body", "full", "results beyond"],
)
def test_the_limits_decide(used: TenantUsage, asked: TenantUsage, code: str | None) -> None:
    refusal = find_refusal(LIMITS, used, asked)

    assert (refusal.code if refusal else None) == code


def test_while_room_is_scarce_only_tenants_with_few_records_add_to_them() -> None:
    many, few = TenantUsage(SCARCE_RECORDS, 0), TenantUsage(SCARCE_RECORDS - 1, 0)
    refusal = find_refusal(TenantLimits(), many, ONE_RECORD, is_scarce=True)

    assert refusal is not None
    assert (refusal.status, refusal.code) == (429, "too_many_invocations")
    assert find_refusal(TenantLimits(), few, ONE_RECORD, is_scarce=True) is None
    assert find_refusal(TenantLimits(), many, ONE_RECORD) is None
    assert find_refusal(TenantLimits(), many, BODY, is_scarce=True) is None


@pytest.mark.parametrize(("size", "chunks"), [(1, 1), (CHUNK_BYTES, 1), (CHUNK_BYTES + 1, 2)])
def test_a_body_counts_in_whole_chunks(size: int, chunks: int) -> None:
    assert usage_of_body(size) == TenantUsage(0, chunks * CHUNK_BYTES)


class Measured:
    def __init__(self, records: int) -> None:
        self.records = records
        self.times = 0

    async def measure_tenant(self, tenant: str) -> TenantUsage:
        assert tenant == "acme"
        self.times += 1
        return TenantUsage(self.records, 0)


async def test_a_tenant_is_measured_once_in_a_while_and_again_before_a_refusal() -> None:
    now = 0.0
    measured = Measured(records=1)
    room, listing = TenantRoom(lambda _: LIMITS, lambda: now), cast(Listing, cast(Any, measured))

    async def take() -> None:
        async with room.hold(listing, "acme", ONE_RECORD):
            pass

    await take()
    await take()
    assert measured.times == 1
    with pytest.raises(ApiError, match="invocationRecords is 3"):
        await take()
    now += REFUSED_SECONDS * 2
    await take()
    assert measured.times == 2
    room.measure_again("acme")
    await take()
    assert measured.times == 3
    now += USAGE_SECONDS * 2
    await take()
    assert measured.times == 4


async def test_what_is_being_stored_counts_beside_what_is_measured() -> None:
    now = 0.0
    room, listing = TenantRoom(lambda _: LIMITS, lambda: now), cast(Listing, cast(Any, Measured(records=2)))
    async with room.hold(listing, "acme", ONE_RECORD):
        now += USAGE_SECONDS * 2
        with pytest.raises(ApiError):
            async with room.hold(listing, "acme", ONE_RECORD):
                pass
