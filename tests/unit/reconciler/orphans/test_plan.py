"""The table of `plan_orphans`."""

from datetime import timedelta
from typing import Any, cast

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.kube.requests import ObjectClient
from reconciler.guarded_writes import DeleteObject
from reconciler.informers import World
from reconciler.orphans.controller import OrphansController
from reconciler.orphans.plan import (
    Observed,
    OrphanLimits,
    ReleaseClaim,
    ends_of,
    plan_orphans,
)
from tests.support.builders import NOW, make_stock, make_unit

SECOND = timedelta(seconds=1)
LIMITS = OrphanLimits()


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
        "units": {},
        "operations": {},
        "children": (),
        "orphaned_since": {},
    }
    return Observed(**{**fields, **changes})


def unit_from(source: str | None) -> Json:
    unit = make_unit()
    unit["metadata"]["annotations"] = {names.ANNOTATION_SOURCE_STOCK_NAME: source} if source else {}
    return unit


@pytest.mark.parametrize(
    ("age", "sources", "has_ended", "is_released"),
    [
        (LIMITS.claim + SECOND, {"runtime-instance/demo": "pool-0"}, None, False),
        (LIMITS.claim + SECOND, {"runtime-instance/demo": "pool-0"}, True, False),
        (LIMITS.claim + SECOND, {}, False, False),
        (LIMITS.claim - SECOND, {}, None, False),
        (LIMITS.claim + SECOND, {}, None, True),
        (SECOND, {}, True, True),
        (LIMITS.claim + SECOND, {"runtime-instance/demo": "pool-1"}, False, False),
        (SECOND, {"runtime-instance/demo": "pool-1"}, True, True),
        (LIMITS.claim - SECOND, {"runtime-instance/demo": "pool-1"}, None, False),
        (LIMITS.claim + SECOND, {"runtime-instance/demo": "pool-1"}, None, True),
        (LIMITS.claim + SECOND, {"runtime-instance/demo": None}, None, True),
    ],
)
def test_only_a_claim_that_no_unit_and_no_operation_needs_is_released(
    age: timedelta, sources: dict[str, str | None], has_ended: bool | None, is_released: bool
) -> None:
    operations = {} if has_ended is None else {"runtime-instance/op-1": has_ended}
    units = {place: unit_from(source) for place, source in sources.items()}
    plan = plan_orphans(observe(stock=(claimed(age),), units=units, operations=operations), NOW)
    assert [type(write) for write in plan.writes] == ([ReleaseClaim] if is_released else [])


def test_an_ended_operation_of_the_same_name_in_another_namespace_releases_nothing() -> None:
    operations = {"runtime-instance/op-1": False, "runtime-instance-evil/op-1": True}
    assert plan_orphans(observe(stock=(claimed(SECOND),), operations=operations), NOW).writes == ()
    del operations["runtime-instance/op-1"]
    assert plan_orphans(observe(stock=(claimed(SECOND),), operations=operations), NOW).writes == ()


def test_free_stock_is_no_orphan() -> None:
    assert plan_orphans(observe(stock=(make_stock(),)), NOW + timedelta(days=1)).writes == ()


def test_an_object_without_its_unit_is_remembered_first_and_deleted_later() -> None:
    child = {
        "kind": "Service",
        "metadata": {"name": "unit-x", "namespace": "a", "uid": "u", "labels": {names.LABEL_UNIT: "x"}},
    }
    first = plan_orphans(observe(children=(child,)), NOW)
    assert first.writes == ()
    later = plan_orphans(observe(children=(child,), orphaned_since=first.orphaned_since), NOW + LIMITS.child + SECOND)
    assert later.writes == (DeleteObject("Service", child),)
    adopted = plan_orphans(
        observe(children=(child,), units={"a/x": make_unit()}, orphaned_since=first.orphaned_since), NOW
    )
    assert adopted.writes == ()
    assert adopted.orphaned_since == {}


def test_an_operation_has_ended_once_it_succeeded_or_failed() -> None:
    operations = [
        {"metadata": {"name": "a", "namespace": "x"}},
        {"metadata": {"name": "b", "namespace": "x"}, "status": {"phase": "Running"}},
        {"metadata": {"name": "c", "namespace": "x"}, "status": {"phase": "Succeeded"}},
        {"metadata": {"name": "a", "namespace": "y"}, "status": {"phase": "Failed"}},
    ]
    assert ends_of(operations) == {"x/a": False, "x/b": False, "x/c": True, "y/a": True}


def test_what_belongs_to_a_storage_is_no_orphan_of_a_unit() -> None:
    child = {
        "kind": "Service",
        "metadata": {"name": "accessor-x", "namespace": "a", "uid": "u", "labels": names.storage_labels("x")},
    }
    assert plan_orphans(observe(children=(child,)), NOW).orphaned_since == {}


def test_what_is_orphaned_is_gone_within_ninety_seconds() -> None:
    """A limit passes, and the next look comes after at most one interval."""
    controller = OrphansController(cast("World", None), cast("ObjectClient", None), lambda: NOW, LIMITS)

    assert max(LIMITS.claim, LIMITS.child) + controller.interval <= timedelta(seconds=90)
