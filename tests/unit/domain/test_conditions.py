"""A condition says since when it is so; that moment must not move while nothing changes."""

from datetime import UTC, datetime

from gpu_platform.domain.conditions import Condition, ConditionStatus, find_condition, with_condition

MONDAY = datetime(2030, 1, 7, tzinfo=UTC)
TUESDAY = datetime(2030, 1, 8, tzinfo=UTC)


def make_condition(
    type_: str = "Ready",
    status: ConditionStatus = "False",
    reason: str = "UnitProgressing",
    at: datetime = MONDAY,
    message: str = "",
) -> Condition:
    return Condition(type=type_, status=status, reason=reason, message=message, last_transition_time=at)


def test_the_first_condition_of_its_type_is_added() -> None:
    scheduled, ready = make_condition("Scheduled"), make_condition("Ready")

    assert with_condition((), ready) == (ready,)
    assert with_condition((scheduled,), ready) == (scheduled, ready)


def test_another_status_moves_the_transition_time() -> None:
    [condition] = with_condition((make_condition(status="False"),), make_condition(status="True", at=TUESDAY))

    assert condition.last_transition_time == TUESDAY


def test_another_reason_with_the_same_status_keeps_the_transition_time() -> None:
    new = make_condition(reason="Unschedulable", message="no free GPU", at=TUESDAY)

    [condition] = with_condition((make_condition(reason="UnitProgressing"),), new)

    assert condition.last_transition_time == MONDAY
    assert (condition.reason, condition.message) == ("Unschedulable", "no free GPU")


def test_the_same_condition_again_changes_nothing() -> None:
    before = (make_condition("Scheduled"), make_condition("Ready"))

    assert with_condition(before, make_condition("Ready", at=TUESDAY)) == before


def test_conditions_keep_their_places() -> None:
    before = (make_condition("Ready"), make_condition("Scheduled"))

    after = with_condition(before, make_condition("Ready", status="True", at=TUESDAY))

    assert [condition.type for condition in after] == ["Ready", "Scheduled"]


def test_a_condition_is_found_by_its_type() -> None:
    ready = make_condition("Ready")

    assert find_condition((make_condition("Scheduled"), ready), "Ready") == ready
    assert find_condition((ready,), "Scheduled") is None


def test_the_wire_form_is_that_of_kubernetes() -> None:
    assert make_condition(message="wait").to_json() == {
        "type": "Ready",
        "status": "False",
        "reason": "UnitProgressing",
        "message": "wait",
        "lastTransitionTime": "2030-01-07T00:00:00Z",
    }
