"""What becomes of a call that nobody brings to its end."""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from gpu_platform.domain.invocation_plan import EXPIRY_GRACE, QUEUE_GRACE, Sweep, plan_sweep
from gpu_platform.domain.invocations import ENDS, Invocation, InvocationRequest, InvocationState, accept, begin

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
WAITING = accept("acme", InvocationRequest(function="resize", id="call-1", timeout_seconds=3_600), NOW)
RUNNING = begin(WAITING, "worker-1", NOW)

CALLS: dict[str, Invocation] = {
    "waits": WAITING,
    "runs": RUNNING,
    "asked to end": RUNNING.model_copy(update={"is_cancel_asked": True}),
    **{state.value: WAITING.model_copy(update={"state": state}) for state in sorted(ENDS)},
}
AGES = {"young": timedelta(seconds=29), "old": QUEUE_GRACE, "late": timedelta(hours=1) + EXPIRY_GRACE}


def expected(name: str, age: str, *, is_in_queue: bool, function_exists: bool) -> Sweep:
    """The table once more, as a list of rows: what the first fitting one says."""
    rows = (
        (name not in ("waits", "runs", "asked to end"), Sweep.NOTHING),
        (not function_exists, Sweep.CANCEL_DELETED),
        (age == "late", Sweep.EXPIRE),
        (name == "asked to end" and not is_in_queue, Sweep.CANCEL),
        (age == "old" and not is_in_queue, Sweep.ENQUEUE),
        (True, Sweep.NOTHING),
    )
    return next(action for fits, action in rows if fits)


@pytest.mark.parametrize(
    ("name", "age", "is_in_queue", "function_exists"), list(product(CALLS, AGES, (False, True), (False, True)))
)
def test_every_call_has_one_answer(name: str, age: str, is_in_queue: bool, function_exists: bool) -> None:
    action = plan_sweep(CALLS[name], is_in_queue=is_in_queue, function_exists=function_exists, now=NOW + AGES[age])

    assert action is expected(name, age, is_in_queue=is_in_queue, function_exists=function_exists)


def test_a_call_whose_deadline_has_just_passed_is_left_to_its_worker() -> None:
    just_past = WAITING.expires_at + EXPIRY_GRACE - timedelta(seconds=1)

    assert plan_sweep(WAITING, is_in_queue=True, function_exists=True, now=just_past) is Sweep.NOTHING


def test_a_call_that_began_again_has_its_time_again() -> None:
    begun = begin(RUNNING, "worker-2", NOW + timedelta(seconds=50))
    now = NOW + timedelta(seconds=60)

    assert begun.state is InvocationState.RUNNING
    assert plan_sweep(begun, is_in_queue=False, function_exists=True, now=now) is Sweep.NOTHING
