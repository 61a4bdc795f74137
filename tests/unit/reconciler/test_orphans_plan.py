"""The table of `plan_orphans`."""

from datetime import timedelta
from typing import Any

import pytest

from gpu_platform.domain import names
from reconciler.orphans.plan import (
    CHILD_LIMIT,
    CLAIM_LIMIT,
    DeleteOrphan,
    Observed,
    ReleaseClaim,
    active_operation_ids,
    plan_orphans,
)
from tests.builders import NOW, make_stock

Json = dict[str, Any]
SECOND = timedelta(seconds=1)


def claimed(age: timedelta) -> Json:
    stock = make_stock(claimed_by="runtime-instance/demo")
    stock["metadata"]["annotations"] |= {
        names.ANNOTATION_CLAIMED_AT: (NOW - age).isoformat(),
        names.ANNOTATION_OPERATION_ID: "op-1",
    }
    return stock


def observe(**changes: Any) -> Observed:
    fields: Json = {
        "stock": (),
        "units": frozenset(),
        "active_operations": frozenset(),
        "children": (),
        "orphaned_since": {},
    }
    return Observed(**{**fields, **changes})


@pytest.mark.parametrize(
    ("age", "unit_exists", "operation_is_active", "is_released"),
    [
        (CLAIM_LIMIT + SECOND, True, False, False),
        (CLAIM_LIMIT + SECOND, False, True, False),
        (CLAIM_LIMIT - SECOND, False, False, False),
        (CLAIM_LIMIT + SECOND, False, False, True),
    ],
)
def test_only_an_old_claim_without_unit_and_operation_is_released(
    age: timedelta, unit_exists: bool, operation_is_active: bool, is_released: bool
) -> None:
    plan = plan_orphans(
        observe(
            stock=(claimed(age),),
            units=frozenset({"runtime-instance/demo"} if unit_exists else ()),
            active_operations=frozenset({"op-1"} if operation_is_active else ()),
        ),
        NOW,
    )
    assert [type(write) for write in plan.writes] == ([ReleaseClaim] if is_released else [])


def test_free_stock_is_no_orphan() -> None:
    assert plan_orphans(observe(stock=(make_stock(),)), NOW + timedelta(days=1)).writes == ()


def test_an_object_without_its_unit_is_remembered_first_and_deleted_later() -> None:
    child = {
        "kind": "Service",
        "metadata": {"name": "unit-x", "namespace": "a", "uid": "u", "labels": {names.LABEL_UNIT: "x"}},
    }
    first = plan_orphans(observe(children=(child,)), NOW)
    assert first.writes == ()
    later = plan_orphans(observe(children=(child,), orphaned_since=first.orphaned_since), NOW + CHILD_LIMIT + SECOND)
    assert later.writes == (DeleteOrphan(child),)
    adopted = plan_orphans(
        observe(children=(child,), units=frozenset({"a/x"}), orphaned_since=first.orphaned_since), NOW
    )
    assert adopted.writes == ()
    assert adopted.orphaned_since == {}


def test_an_operation_is_active_until_its_end() -> None:
    operations = [
        {"spec": {"operationID": "a"}},
        {"spec": {"operationID": "b"}, "status": {"phase": "Running"}},
        {"spec": {"operationID": "c"}, "status": {"phase": "Succeeded"}},
        {"spec": {"operationID": "d"}, "status": {"phase": "Failed"}},
    ]
    assert active_operation_ids(operations) == {"a", "b"}
