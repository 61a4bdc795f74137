"""The table of `plan_operation`, row by row."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import FINAL_PHASES, RETENTION, TAKEOVER, OperationPhase, OperationStatus
from reconciler.guarded_writes import CreateObject, DeleteObject, ReplaceObject
from reconciler.operations.observe import DELETE_GRACE, Observed
from reconciler.operations.plan import (
    LONGEST_WAIT,
    Plan,
    ReleaseClaims,
    RemoveOperation,
    TrimRequest,
    WriteStatus,
    plan_operation,
)
from tests.support.builders import NOW, make_unit
from tests.unit.reconciler.operations.records import (
    HASH,
    POOL_REQUEST,
    RUNNING,
    SECOND,
    SEED_REQUEST,
    UNIT_REQUEST,
    claim,
    make_record,
    outcome,
    plan,
    status_after,
)

KEPT_FIELDS = {"phase": "Succeeded", "finishedAt": "2030-01-01T11:00:00Z", "targetUid": "uid-demo"}


def create(**observed: Any) -> Observed:
    return Observed(make_record("CreateUnit", UNIT_REQUEST), **observed)


def start(request: Json | None = None, **observed: Any) -> Observed:
    return Observed(make_record("StartUnit", request, uid="uid-demo"), **observed)


def delete(**observed: Any) -> Observed:
    return Observed(make_record("DeleteUnit", uid="uid-demo", age=DELETE_GRACE), **observed)


def job(kind: str = "SeedStockUnits", request: Json | None = None, **observed: Any) -> Observed:
    known = SEED_REQUEST if kind == "SeedStockUnits" else POOL_REQUEST
    status = {**RUNNING, **observed.pop("status", {})}
    record = make_record(kind, known if request is None else request, age=timedelta(), status=status)
    return Observed(record, **{"catalogue": {"spec": {"memory": "16Gi", "gpu": 1}}, **observed})


def unit_of(operation_id: str = "mine", source: str = "pool-0", *, going: bool = False, **spec: Any) -> Json:
    unit = make_unit(**spec)
    unit["metadata"]["annotations"] = {
        names.ANNOTATION_OPERATION_ID: operation_id,
        names.ANNOTATION_REQUEST_HASH: HASH,
        names.ANNOTATION_SOURCE_STOCK_NAME: source,
    }
    if going:
        unit["metadata"]["deletionTimestamp"] = "2030-01-01T12:00:00Z"
    return unit


def pool_of(operation_id: str = "mine", *, seeded: int = 0) -> Json:
    annotations = {names.ANNOTATION_OPERATION_ID: operation_id}
    return {"metadata": {"uid": "uid-pool", "annotations": annotations}, "status": {"seeded": seeded}}


# at its end


@pytest.mark.parametrize("expiry", [{}, {"expiresAt": NOW}, {"expiresAt": NOW + RETENTION}])
@pytest.mark.parametrize("phase", FINAL_PHASES)
def test_the_request_of_an_operation_at_its_end_is_dropped_first(phase: str, expiry: Json) -> None:
    ended = Observed(make_record("CreateUnit", UNIT_REQUEST, status={**KEPT_FIELDS, "phase": phase, **expiry}))
    assert plan(ended).step == TrimRequest()


def test_a_request_that_cannot_be_dropped_yet_keeps_its_operation_and_is_tried_again() -> None:
    record = make_record("CreateUnit", UNIT_REQUEST, status=KEPT_FIELDS)
    refused = Observed(record, object_exists=True, refusal="the role is older")
    assert plan(refused) == Plan(wait=LONGEST_WAIT, why="the role is older")
    assert status_after(replace(refused, object_exists=False)).expires_at == NOW + RETENTION


def test_a_start_at_its_end_is_not_kept_as_long_as_its_unit() -> None:
    ended = Observed(make_record("StartUnit", {}, status=KEPT_FIELDS), object_exists=True)
    [status] = [step.status for step in [plan_operation(ended, NOW).step] if isinstance(step, WriteStatus)]
    assert status.expires_at == NOW + RETENTION


def test_an_operation_at_its_end_is_kept_while_its_object_exists() -> None:
    ended = Observed(make_record("CreateUnit", status=KEPT_FIELDS), object_exists=True)
    assert plan(ended) == Plan()


def test_its_days_are_counted_from_the_end_of_its_object_and_all_else_stays() -> None:
    ended = Observed(make_record("CreateUnit", status=KEPT_FIELDS))
    assert status_after(ended) == OperationStatus.model_validate({**KEPT_FIELDS, "expiresAt": NOW + RETENTION})


@pytest.mark.parametrize(("left", "wait"), [(SECOND, SECOND), (RETENTION, LONGEST_WAIT)])
def test_an_operation_that_is_only_kept_is_looked_at_again_when_it_expires(left: timedelta, wait: timedelta) -> None:
    status = {**KEPT_FIELDS, "expiresAt": NOW + left}
    kept = plan(Observed(make_record("CreateUnit", status=status)))
    assert (kept.step, kept.wait) == (None, wait)


def test_an_expired_operation_is_forgotten() -> None:
    status = {**KEPT_FIELDS, "expiresAt": NOW}
    assert plan(Observed(make_record("DeleteUnit", status=status))).step == RemoveOperation()


@pytest.mark.parametrize(
    "kind",
    [
        "CreateUnit",
        "StartUnit",
        "DeleteUnit",
        "SeedStockUnits",
        "CreateStockPool",
        "CreateFunction",
        "DeleteFunction",
        "PreviewUnit",
    ],
)
def test_no_operation_acts_in_another_namespace(kind: str) -> None:
    elsewhere = Observed(make_record(kind, namespace="runtime-instance-other"), found=unit_of(), claims=(claim(),))
    assert outcome(elsewhere) == (OperationPhase.FAILED, "InvalidTarget")


# CreateUnit


@pytest.mark.parametrize("kind", ["CreateUnit", "StartUnit", "CreateFunction"])
def test_a_young_operation_is_its_owners(kind: str) -> None:
    young = Observed(make_record(kind, UNIT_REQUEST, age=TAKEOVER - SECOND), claims=(claim(),))
    assert (plan(young).step, plan(young).wait) == (None, SECOND)


def test_a_unit_without_the_mark_is_marked() -> None:
    status = status_after(create(found=unit_of(), claims=(claim(),)))
    assert (status.phase, status.target_uid, status.finished_at) == (OperationPhase.SUCCEEDED, "uid-demo", NOW)
    assert status.expires_at is None


def test_what_a_unit_did_not_need_is_given_back_before_the_mark() -> None:
    spare = claim("pool-7")
    result = plan(create(found=unit_of(), claims=(claim(), spare)))
    assert result.step == ReleaseClaims((spare,))
    assert not result.is_last


def test_a_name_that_another_operation_took_ends_this_one_without_a_trace() -> None:
    taken = create(found=unit_of("other"), claims=(claim(),))
    assert plan(taken).step == ReleaseClaims(taken.claims)
    assert plan(replace(taken, claims=())).step == RemoveOperation()


def test_a_claim_without_a_unit_is_rolled_forward_from_the_oldest_claim() -> None:
    young, old = claim("pool-0", NOW - SECOND), claim("pool-9", NOW - TAKEOVER)
    result = plan(create(claims=(young, old)))
    assert isinstance(result.step, CreateObject)
    assert result.step.kind == "GPUUnit"
    body = result.step.body
    assert (body["metadata"]["name"], body["metadata"]["namespace"]) == ("demo", "runtime-instance")
    assert body["metadata"]["annotations"][names.ANNOTATION_SOURCE_STOCK_NAME] == "pool-9"
    assert body["metadata"]["annotations"][names.ANNOTATION_OPERATION_ID] == "mine"
    assert (body["spec"]["image"], body["spec"]["memory"], body["spec"]["gpu"]) == ("example/train", "16Gi", 1)
    assert not result.is_last


def test_a_unit_that_the_api_server_refuses_is_given_up() -> None:
    refused = create(claims=(claim(),), refusal="no such quota")
    assert plan(refused).step == ReleaseClaims(refused.claims)
    assert plan(refused).why == "no such quota"


def test_a_request_that_nobody_can_read_is_given_up() -> None:
    unreadable = Observed(make_record("CreateUnit", {"name": "demo"}), claims=(claim(),))
    assert plan(unreadable).step == ReleaseClaims(unreadable.claims)


def test_an_operation_that_came_to_nothing_is_forgotten() -> None:
    assert plan(create()).step == RemoveOperation()
    assert plan(create()).is_last


# StartUnit


@pytest.mark.parametrize("unit", [None, {**make_unit("demo"), "metadata": {"uid": "another"}}, unit_of(going=True)])
def test_starting_a_unit_that_was_deleted_fails_and_holds_nothing(unit: Json | None) -> None:
    gone = start(found=unit, claims=(claim(),))
    assert plan(gone).step == ReleaseClaims(gone.claims)
    assert outcome(replace(gone, claims=())) == (OperationPhase.FAILED, "UnitGone")


def test_a_unit_that_runs_already_is_started() -> None:
    own, spare = claim("pool-0"), claim("pool-7")
    runs = start(found=unit_of("earlier"), claims=(own, spare))
    assert plan(runs).step == ReleaseClaims((spare,))
    assert outcome(replace(runs, claims=(own,))) == (OperationPhase.SUCCEEDED, None)
    assert status_after(replace(runs, claims=())).target_uid == "uid-demo"


def test_a_stopped_unit_is_started_on_the_oldest_claim() -> None:
    claims = (claim("pool-3", NOW - SECOND), claim("pool-2", NOW - TAKEOVER))
    result = plan(start(found=unit_of("earlier", source="long-gone", running=False), claims=claims))
    assert isinstance(result.step, ReplaceObject)
    assert result.step.kind == "GPUUnit"
    started = result.step.body
    assert started["spec"]["running"] is True
    assert started["metadata"]["annotations"][names.ANNOTATION_SOURCE_STOCK_NAME] == "pool-2"
    assert (started["metadata"]["uid"], started["metadata"]["resourceVersion"]) == ("uid-demo", "7")


def test_a_start_that_came_to_nothing_is_forgotten() -> None:
    stopped = start(found=unit_of(running=False))
    assert plan(stopped).step == RemoveOperation()
    refused = replace(stopped, claims=(claim(),), refusal="no")
    assert plan(refused).step == ReleaseClaims(refused.claims)


def test_a_unit_that_was_changed_since_stays_stopped() -> None:
    unit = unit_of(running=False)
    as_it_was = start({"generation": 1}, found=unit, claims=(claim(),))
    assert isinstance(plan(as_it_was).step, ReplaceObject)
    unit["metadata"]["generation"] = 3
    assert plan(as_it_was).step == ReleaseClaims(as_it_was.claims)


# DeleteUnit


def test_deleting_is_left_to_the_api_for_a_moment() -> None:
    young = Observed(make_record("DeleteUnit", uid="uid-demo", age=timedelta()), found=unit_of())
    assert (plan(young).step, plan(young).wait) == (None, DELETE_GRACE)


def test_that_unit_is_deleted_and_waited_for() -> None:
    unit = unit_of()
    assert plan(delete(found=unit)).step == DeleteObject("GPUUnit", unit, after_children=True)
    assert not plan(delete(found=unit)).is_last
    waiting = plan(delete(found=unit_of(going=True)))
    assert (waiting.step, waiting.wait) == (None, None)


@pytest.mark.parametrize("unit", [None, {**make_unit(), "metadata": {"uid": "another"}}])
def test_a_deletion_has_succeeded_when_that_unit_is_gone(unit: Json | None) -> None:
    assert outcome(delete(found=unit)) == (OperationPhase.SUCCEEDED, None)
    assert status_after(delete(found=unit)).expires_at == NOW + RETENTION


# jobs

every_job = pytest.mark.parametrize("kind", ["SeedStockUnits", "CreateStockPool"])


@every_job
def test_a_job_begins_at_once(kind: str) -> None:
    new = job(kind, status={"phase": None, "startedAt": None})
    assert status_after(new) == OperationStatus(phase=OperationPhase.RUNNING, started_at=NOW)
    assert not plan(new).is_last


@every_job
def test_a_job_that_nobody_can_read_fails(kind: str) -> None:
    assert outcome(job(kind, {"replicas": 1})) == (OperationPhase.FAILED, "InvalidRequest")


@every_job
def test_a_job_that_the_api_server_refuses_fails_in_its_words(kind: str) -> None:
    refused = job(kind, refusal="metadata.name: too long")
    assert outcome(refused) == (OperationPhase.FAILED, "Refused")
    assert status_after(refused).message == "metadata.name: too long"


@pytest.mark.parametrize(
    ("request_", "catalogue"),
    [
        ({"specName": "g1.1", "replicas": 2}, None),
        ({"specName": "g1.1", "replicas": 2, "memory": "16Gi"}, None),
        ({**SEED_REQUEST, "memory": "8Gi"}, {"spec": {"memory": "16Gi", "gpu": 1}}),
        ({**SEED_REQUEST, "gpu": 2}, {"spec": {"memory": "16Gi", "gpu": 1}}),
    ],
)
def test_a_job_with_the_wrong_size_fails(request_: Json, catalogue: Json | None) -> None:
    assert outcome(job(request=request_, catalogue=catalogue)) == (OperationPhase.FAILED, "InvalidSpec")


def test_an_unknown_spec_is_made_before_the_pool() -> None:
    step = plan(job(catalogue=None)).step
    assert isinstance(step, CreateObject)
    assert step.kind == "GPUSpec"
    assert step.body["spec"]["memory"] == "16Gi"


@every_job
def test_the_pool_is_made_under_the_targets_name(kind: str) -> None:
    step = plan(job(kind)).step
    assert isinstance(step, CreateObject)
    assert step.kind == "StockPool"
    assert (step.body["metadata"]["name"], step.body["spec"]["replicas"]) == ("pool", 2)
    assert step.body["spec"]["replenish"] == ("Never" if kind == "SeedStockUnits" else "Always")


def test_a_pool_that_an_operator_deleted_is_not_made_again() -> None:
    assert outcome(job(status={"targetUid": "uid-pool"})) == (OperationPhase.FAILED, "PoolDeleted")
    later = {"metadata": {"uid": "uid-later", "annotations": {}}}
    assert outcome(job(status={"targetUid": "uid-pool"}, found=later)) == (OperationPhase.FAILED, "PoolDeleted")


@every_job
@pytest.mark.parametrize("pool", [pool_of("other", seeded=2), {"metadata": {"uid": "uid-pool"}}])
def test_a_pool_of_another_operation_is_left_alone(kind: str, pool: Json) -> None:
    assert outcome(job(kind, found=pool)) == (OperationPhase.FAILED, "NameTaken")


def test_a_pool_job_is_done_when_the_pool_exists() -> None:
    status = status_after(job("CreateStockPool", found=pool_of()))
    assert (status.phase, status.target_uid) == (OperationPhase.SUCCEEDED, "uid-pool")
    assert status.started_at == datetime.fromisoformat(RUNNING["startedAt"])


def test_a_seed_job_is_done_when_all_its_units_were_made_once() -> None:
    noted = status_after(job(found=pool_of(seeded=1)))
    assert (noted.phase, noted.target_uid) == (OperationPhase.RUNNING, "uid-pool")
    filling = plan(job(found=pool_of(seeded=1), status={"targetUid": "uid-pool"}))
    assert (filling.step, filling.wait) == (None, None)
    assert outcome(job(found=pool_of(seeded=2))) == (OperationPhase.SUCCEEDED, None)
