"""How long the bodies of an invocation are kept."""

from datetime import UTC, datetime

import pytest

from gpu_platform.domain.invocation_plan import ORPHAN_GRACE, BodyRetention, plan_bodies
from gpu_platform.domain.invocations import InvocationRequest, InvocationState, accept

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
CALL = accept("acme", InvocationRequest(function="resize", id="call-1"), NOW)

BY_STATE = {
    InvocationState.QUEUED: BodyRetention.KEEP,
    InvocationState.RUNNING: BodyRetention.KEEP,
    InvocationState.SUCCEEDED: BodyRetention.KEEP_FOR_CALLER,
    InvocationState.FAILED: BodyRetention.KEEP_FOR_CALLER,
    InvocationState.EXPIRED: BodyRetention.KEEP_FOR_CALLER,
    InvocationState.DEAD_LETTERED: BodyRetention.KEEP_FOR_CALLER,
    InvocationState.CANCELLED: BodyRetention.DELETE,
}


@pytest.mark.parametrize("state", InvocationState)
def test_the_record_decides(state: InvocationState) -> None:
    assert plan_bodies(CALL.model_copy(update={"state": state}), None, NOW) is BY_STATE[state]


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        (None, BodyRetention.KEEP),
        (NOW, BodyRetention.KEEP),
        (NOW - ORPHAN_GRACE / 2, BodyRetention.KEEP),
        (NOW - ORPHAN_GRACE, BodyRetention.DELETE),
    ],
    ids=["first look", "this moment", "a while", "the grace is over"],
)
def test_bodies_without_a_record_are_deleted_after_a_grace(since: datetime | None, expected: BodyRetention) -> None:
    assert plan_bodies(None, since, NOW) is expected
