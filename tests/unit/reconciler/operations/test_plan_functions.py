"""The rows of `plan_operation` about functions."""

import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import RETENTION, TAKEOVER, OperationPhase
from reconciler.guarded_writes import DeleteObject
from reconciler.operations.observe import DELETE_GRACE, Observed
from reconciler.operations.plan import RemoveOperation, WriteStatus
from tests.support.builders import NOW, make_function
from tests.unit.reconciler.operations.records import HASH, SECOND, make_record, outcome, plan, status_after


def function_of(operation_id: str = "mine", *, going: bool = False, uid: str = "uid-demo") -> Json:
    function = make_function("demo")
    function["metadata"] |= {
        "uid": uid,
        "annotations": {names.ANNOTATION_OPERATION_ID: operation_id, names.ANNOTATION_REQUEST_HASH: HASH},
    }
    if going:
        function["metadata"]["deletionTimestamp"] = "2030-01-01T12:00:00Z"
    return function


def create(**observed: Any) -> Observed:
    return Observed(make_record("CreateFunction", {"name": "demo"}), **observed)


def delete(age: timedelta = DELETE_GRACE, **observed: Any) -> Observed:
    return Observed(make_record("DeleteFunction", uid="uid-demo", age=age), **observed)


@pytest.mark.parametrize("going", [False, True])
def test_a_function_without_the_mark_is_marked(going: bool) -> None:
    made = create(found=function_of(going=going))
    assert outcome(made) == (OperationPhase.SUCCEEDED, None)
    status = status_after(made)
    assert (status.target_uid, status.expires_at) == ("uid-demo", None)


@pytest.mark.parametrize("function", [None, function_of("other"), make_function("demo")])
def test_a_function_that_was_not_made_can_be_asked_for_again(function: Json | None) -> None:
    nothing = plan(create(found=function))
    assert nothing.step == RemoveOperation()
    assert nothing.is_last


def test_deleting_is_left_to_the_api_for_a_moment() -> None:
    young = plan(delete(timedelta(), found=function_of()))
    assert (young.step, young.wait) == (None, DELETE_GRACE)


def test_that_function_is_deleted_and_waited_for() -> None:
    function = function_of()
    assert plan(delete(found=function)).step == DeleteObject("GPUFunction", function, after_children=True)
    assert not plan(delete(found=function)).is_last
    waiting = plan(delete(found=function_of(going=True)))
    assert (waiting.step, waiting.wait) == (None, None)


@pytest.mark.parametrize("function", [None, function_of(uid="another")])
def test_a_deletion_has_succeeded_when_that_function_is_gone(function: Json | None) -> None:
    assert outcome(delete(found=function)) == (OperationPhase.SUCCEEDED, None)
    assert status_after(delete(found=function)).expires_at == NOW + RETENTION


def test_no_combination_touches_a_function_of_somebody_else_or_too_early() -> None:
    functions = (None, function_of(), function_of("other"), function_of(going=True), function_of(uid="another"))
    ages = (timedelta(), DELETE_GRACE, TAKEOVER - SECOND, TAKEOVER)
    for kind, function, age in itertools.product(("CreateFunction", "DeleteFunction"), functions, ages):
        observed = Observed(make_record(kind, {"name": "demo"}, uid="uid-demo", age=age), found=function)
        step = plan(observed).step
        due = DELETE_GRACE if kind == "DeleteFunction" else TAKEOVER
        assert (step is None) >= (age < due)
        if isinstance(step, DeleteObject):
            assert kind == "DeleteFunction"
            assert step.seen["metadata"]["uid"] == "uid-demo"
        if isinstance(step, WriteStatus):
            assert step.status.phase is OperationPhase.SUCCEEDED


@pytest.mark.parametrize("kind", ["CreateFunction", "DeleteFunction"])
def test_there_are_no_functions_with_the_stock(kind: str) -> None:
    record = make_record(kind, uid="uid-demo", namespace=names.STOCK_NAMESPACE)
    target = record.spec.target.model_copy(update={"namespace": names.STOCK_NAMESPACE})
    elsewhere = replace(record, spec=record.spec.model_copy(update={"target": target}))
    assert outcome(Observed(elsewhere, found=function_of())) == (OperationPhase.FAILED, "InvalidTarget")
