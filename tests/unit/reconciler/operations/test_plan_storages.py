"""The rows of `plan_operation` about storages."""

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
from tests.support.builders import NOW, make_storage
from tests.unit.reconciler.operations.records import HASH, SECOND, make_record, outcome, plan, status_after

KINDS = ("CreateStorage", "RecoverStorage", "DeleteStorage")


def storage_of(
    operation_id: str = "mine",
    *,
    going: bool = False,
    uid: str = "uid-demo",
    nonce: str | None = None,
    holder: str | None = None,
) -> Json:
    storage = make_storage("demo")
    said = {names.ANNOTATION_RECOVERY_NONCE: nonce, names.ANNOTATION_MOUNTED_BY: holder}
    storage["metadata"] |= {
        "uid": uid,
        "annotations": {
            names.ANNOTATION_OPERATION_ID: operation_id,
            names.ANNOTATION_REQUEST_HASH: HASH,
            **{key: value for key, value in said.items() if value},
        },
    }
    if going:
        storage["metadata"]["deletionTimestamp"] = "2030-01-01T12:00:00Z"
    return storage


def create(**observed: Any) -> Observed:
    return Observed(make_record("CreateStorage", {"name": "demo"}), **observed)


def recover(**observed: Any) -> Observed:
    return Observed(make_record("RecoverStorage", uid="uid-demo"), **observed)


def delete(age: timedelta = DELETE_GRACE, **observed: Any) -> Observed:
    return Observed(make_record("DeleteStorage", uid="uid-demo", age=age), **observed)


@pytest.mark.parametrize("going", [False, True])
def test_a_storage_without_the_mark_is_marked(going: bool) -> None:
    made = create(found=storage_of(going=going))
    assert outcome(made) == (OperationPhase.SUCCEEDED, None)
    assert (status_after(made).target_uid, status_after(made).expires_at) == ("uid-demo", None)


@pytest.mark.parametrize("storage", [None, storage_of("other"), make_storage("demo")])
def test_a_storage_that_was_not_made_can_be_asked_for_again(storage: Json | None) -> None:
    assert plan(create(found=storage)).step == RemoveOperation()


def test_a_recovery_that_the_storage_knows_has_succeeded() -> None:
    told = recover(found=storage_of(nonce="op-1"))
    assert outcome(told) == (OperationPhase.SUCCEEDED, None)
    assert status_after(told).target_uid == "uid-demo"


@pytest.mark.parametrize(
    "storage", [None, storage_of(), storage_of(nonce="op-2"), storage_of(nonce="op-1", uid="another")]
)
def test_a_recovery_that_the_storage_does_not_know_can_be_asked_for_again(storage: Json | None) -> None:
    assert plan(recover(found=storage)).step == RemoveOperation()


def test_that_storage_is_deleted_as_it_was_seen_and_waited_for() -> None:
    storage = storage_of()
    assert plan(delete(found=storage)).step == DeleteObject("GPUStorage", storage, unchanged=True, after_children=True)
    assert not plan(delete(found=storage)).is_last
    waiting = plan(delete(found=storage_of(going=True, holder="unit/web")))
    assert (waiting.step, waiting.wait) == (None, None)


@pytest.mark.parametrize("holder", ["unit/web", "storage/copy"])
def test_the_end_of_a_storage_that_somebody_took_meanwhile_was_not_accepted(holder: str) -> None:
    assert plan(delete(found=storage_of(holder=holder))).step == RemoveOperation()


@pytest.mark.parametrize("storage", [None, storage_of(uid="another"), storage_of(uid="another", holder="unit/web")])
def test_a_deletion_has_succeeded_when_that_storage_is_gone(storage: Json | None) -> None:
    assert outcome(delete(found=storage)) == (OperationPhase.SUCCEEDED, None)
    assert status_after(delete(found=storage)).expires_at == NOW + RETENTION


def test_no_combination_touches_a_storage_of_somebody_else_or_in_use_or_too_early() -> None:
    storages = (
        None,
        storage_of(),
        storage_of("other"),
        storage_of(going=True),
        storage_of(uid="another"),
        storage_of(holder="unit/web"),
        storage_of(nonce="op-1"),
    )
    ages = (timedelta(), DELETE_GRACE, TAKEOVER - SECOND, TAKEOVER)
    for kind, storage, age in itertools.product(KINDS, storages, ages):
        observed = Observed(make_record(kind, {"name": "demo"}, uid="uid-demo", age=age), found=storage)
        step = plan(observed).step
        due = DELETE_GRACE if kind == "DeleteStorage" else TAKEOVER
        assert (step is None) >= (age < due)
        if isinstance(step, DeleteObject):
            assert kind == "DeleteStorage"
            assert step.seen["metadata"]["uid"] == "uid-demo"
            assert names.ANNOTATION_MOUNTED_BY not in step.seen["metadata"]["annotations"]
        if isinstance(step, WriteStatus):
            assert step.status.phase is OperationPhase.SUCCEEDED


@pytest.mark.parametrize("kind", KINDS)
def test_there_are_no_storages_with_the_stock(kind: str) -> None:
    record = make_record(kind, uid="uid-demo", namespace=names.STOCK_NAMESPACE)
    target = record.spec.target.model_copy(update={"namespace": names.STOCK_NAMESPACE})
    elsewhere = replace(record, spec=record.spec.model_copy(update={"target": target}))
    assert outcome(Observed(elsewhere, found=storage_of())) == (OperationPhase.FAILED, "InvalidTarget")
