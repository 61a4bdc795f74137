"""How many objects a tenant may have: decided, declared as a quota, and read from a refusal of the API server."""

from typing import Any

import pytest

from gpu_platform.domain.operations import OperationKind
from gpu_platform.domain.tenant_limits import (
    EXEMPT,
    ReachedLimit,
    TenantLimits,
    build_hard,
    describe_reached,
    find_reached,
    is_counted,
    is_uncounted,
    parse_exceeded,
)

LIMITS = TenantLimits(units=2, storages=3, functions=4, operations=10)
FEW = {"units": 1, "storages": 1, "functions": 1, "operations": 9}
RECORDED_ONLY = (OperationKind.START_UNIT, OperationKind.RECOVER_STORAGE, OperationKind.PREVIEW_UNIT)
MADE = {
    OperationKind.CREATE_UNIT: "units",
    OperationKind.CREATE_STORAGE: "storages",
    OperationKind.CREATE_FUNCTION: "functions",
}


@pytest.mark.parametrize("kind", OperationKind)
def test_below_its_limits_a_tenant_may_do_everything(kind: OperationKind) -> None:
    assert find_reached(kind, LIMITS, FEW) is None


@pytest.mark.parametrize(("kind", "name"), MADE.items())
@pytest.mark.parametrize("over", [0, 1])
def test_the_limit_of_a_kind_refuses_this_kind_only(kind: OperationKind, name: str, over: int) -> None:
    limit = getattr(LIMITS, name)
    used = {**FEW, name: limit + over}
    assert find_reached(kind, LIMITS, used) == ReachedLimit(name, limit, limit + over)
    for other in set(OperationKind) - {kind}:
        assert find_reached(other, LIMITS, used) is None


@pytest.mark.parametrize("kind", [*MADE, *RECORDED_ONLY])
def test_the_limit_of_operations_refuses_what_is_recorded(kind: OperationKind) -> None:
    assert find_reached(kind, LIMITS, {**FEW, "operations": 10}) == ReachedLimit("operations", 10, 10)


@pytest.mark.parametrize("kind", EXEMPT)
def test_no_limit_refuses_a_deletion_or_an_operators_job(kind: OperationKind) -> None:
    assert find_reached(kind, LIMITS, dict.fromkeys(FEW, 1_000)) is None


def test_every_kind_of_operation_has_a_row() -> None:
    assert {*MADE, *RECORDED_ONLY, *EXEMPT} == set(OperationKind)


def test_the_quota_leaves_room_for_the_deletion_of_every_object() -> None:
    assert build_hard(LIMITS) == {
        "count/gpuunits.runtime.lokiwager.io": "2",
        "count/gpustorages.runtime.lokiwager.io": "3",
        "count/gpufunctions.runtime.lokiwager.io": "4",
        "count/operations.runtime.lokiwager.io": "19",
    }


@pytest.mark.parametrize(
    ("message", "reached"),
    [
        (
            "exceeded quota: platform-object-counts, requested: count/operations.runtime.lokiwager.io=1, "
            "used: count/operations.runtime.lokiwager.io=27500, limited: count/operations.runtime.lokiwager.io=27500",
            ReachedLimit("operations", 27_500, 27_500, has_reserve=True),
        ),
        (
            "exceeded quota: mine, requested: count/gpuunits.runtime.lokiwager.io=1,pods=1, "
            "used: count/gpuunits.runtime.lokiwager.io=5k,pods=7, "
            "limited: count/gpuunits.runtime.lokiwager.io=5k,pods=7",
            ReachedLimit("units", 5_000, 5_000),
        ),
        ("exceeded quota: platform-quota, requested: pods=1, used: pods=5, limited: pods=5", None),
        ("status unknown for quota: platform-object-counts, resources: count/operations.runtime.lokiwager.io", None),
        ("exceeded quota: tenant", None),
    ],
)
def test_the_reached_limit_is_read_from_a_refusal(message: str, reached: ReachedLimit | None) -> None:
    assert parse_exceeded(f'x "y" is forbidden: {message}') == reached


def test_what_is_not_counted_yet_is_told_from_what_is_too_much() -> None:
    assert is_uncounted("status unknown for quota: platform-object-counts, resources: count/x")
    assert not is_uncounted("exceeded quota: platform-object-counts")


HARD = build_hard(LIMITS)


@pytest.mark.parametrize(
    ("status", "counted"),
    [
        ({}, False),
        ({"hard": HARD}, False),
        ({"hard": HARD, "used": dict.fromkeys(list(HARD)[1:], "0")}, False),
        ({"hard": {**HARD, "count/gpuunits.runtime.lokiwager.io": "9"}, "used": dict.fromkeys(HARD, "0")}, False),
        ({"hard": HARD, "used": dict.fromkeys(HARD, "0")}, True),
    ],
)
def test_a_quota_is_counted_once_its_status_has_every_count(status: dict[str, Any], counted: bool) -> None:
    assert is_counted({"spec": {"hard": HARD}, "status": status}) is counted


@pytest.mark.parametrize("name", FEW)
def test_a_refusal_names_the_limit_its_value_and_what_is_used(name: str) -> None:
    assert f"has 3 {name}, and its limit {name} is 2" in describe_reached(ReachedLimit(name, 2, 3))
