"""The table of `plan_unit`, row by row, and what its children look like."""

import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stock import HANDOFF_LIMIT
from gpu_platform.domain.units import Phase, Reason
from reconciler.child_diff import UnitChild
from reconciler.guarded_writes import CreateObject, DeleteObject, ReplaceObject
from reconciler.units.observe import Observed, SourceStock
from reconciler.units.plan import LURKER_LIMIT, QUIET_START, plan_unit
from reconciler.units.pod_status import find_trial
from tests.support.builders import NOW, as_stored, make_pod, make_stock, make_unit
from tests.unit.reconciler.units.observed import (
    HTTP,
    READY,
    SETTINGS,
    message,
    observe,
    plan,
    ready_reason,
    settle,
    with_child,
)

AVAILABLE = {"is_ready": True}


def foreign_container_field(field: str) -> Json:
    container: Json = {'k:{"name":"runtime-worker"}': {".": {}, field: {}}}
    return {
        "manager": "kubectl",
        "fieldsV1": {"f:spec": {"f:template": {"f:spec": {"f:containers": container}}}},
    }


def test_a_new_unit_gets_its_policy_before_its_service_before_its_deployment() -> None:
    result = plan(observe(make_unit(template=HTTP)))
    assert [write.kind for write in result.writes if isinstance(write, CreateObject)] == [
        UnitChild.NETWORK_POLICY,
        UnitChild.SERVICE,
        UnitChild.DEPLOYMENT,
    ]
    assert ready_reason(result) == (Phase.PROGRESSING, Reason.UNIT_PROGRESSING)


def test_second_pass_over_an_unchanged_unit_writes_nothing() -> None:
    observed = settle(observe(make_unit(template=HTTP)), **AVAILABLE)
    result = plan(observed)
    assert result.writes == ()
    stored = {**observed.unit, "status": result.status.to_json()}
    again = plan_unit(replace(observed, unit=stored), SETTINGS, NOW + timedelta(hours=1))
    assert again.writes == ()
    assert again.status.model_copy(update={"last_sync_time": NOW}) == result.status


def test_available_unit_is_ready_and_shows_its_address() -> None:
    result = plan(settle(observe(make_unit(template=HTTP)), **AVAILABLE))
    assert ready_reason(result) == (Phase.READY, Reason.UNIT_READY)
    assert result.status.access_url == "http://unit-demo.runtime-instance.svc.cluster.local:8000"
    assert result.status.service_name == "unit-demo"
    assert result.status.ready_replicas == 1


def test_an_old_pod_that_still_answers_does_not_make_the_new_template_ready() -> None:
    running = settle(observe(make_unit(template=HTTP)), is_ready=True)
    edited = plan(replace(running, unit=make_unit(template=HTTP, image="example/other")))
    assert [type(write) for write in edited.writes] == [ReplaceObject]
    assert edited.status.phase is Phase.PROGRESSING


def test_a_pod_on_its_way_out_makes_nothing_ready() -> None:
    running = settle(observe(make_unit(template=HTTP)), is_ready=True)
    [pod] = running.pods
    leaving = {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2030-01-01T12:00:00Z"}}
    assert plan(replace(running, pods=(leaving,))).status.phase is Phase.PROGRESSING


def test_address_is_hidden_while_the_unit_is_not_ready() -> None:
    result = plan(settle(observe(make_unit(template=HTTP))))
    assert result.status.access_url is None
    assert result.status.service_name == "unit-demo"


def test_ports_removed_takes_the_service_away() -> None:
    with_ports = settle(observe(make_unit(template=HTTP)), **AVAILABLE)
    result = plan(replace(with_ports, unit=make_unit()))
    assert [write.kind for write in result.writes if isinstance(write, DeleteObject)] == [UnitChild.SERVICE]
    assert result.status.service_name is None


@pytest.mark.parametrize(
    ("unit", "reason", "words"),
    [
        (
            make_unit(memory="not-a-quantity"),
            Reason.INVALID_SPEC,
            "spec.memory: 'not-a-quantity' is not a quantity",
        ),
        (make_unit(memory="-1Gi"), Reason.INVALID_SPEC, "must be more than zero"),
        (
            make_unit(access={"primaryPort": "web"}, template=HTTP),
            Reason.ACCESS_CONFIG_INVALID,
            "'web' is not a port of the template (it has: http)",
        ),
        (make_unit(access={"primaryPort": "web"}), Reason.ACCESS_CONFIG_INVALID, "(it has: none)"),
    ],
)
def test_a_bad_unit_fails_with_the_field_and_writes_nothing(unit: Json, reason: Reason, words: str) -> None:
    result = plan(observe(unit))
    assert result.writes == ()
    assert result.requeue_after is None
    assert ready_reason(result) == (Phase.FAILED, reason)
    assert words in message(result)


def test_an_unknown_spec_name_fails_with_the_name() -> None:
    result = plan(observe(make_unit(), catalogue=None))
    assert ready_reason(result) == (Phase.FAILED, Reason.INVALID_SPEC)
    assert "there is no GPUSpec 'g1.1'" in message(result)


def test_a_unit_being_deleted_is_left_alone() -> None:
    unit = make_unit()
    unit["metadata"]["deletionTimestamp"] = "2030-01-01T12:00:00Z"
    result = plan(observe(unit))
    assert result.writes == ()
    assert result.status.phase is Phase.TERMINATING


def test_objects_of_an_earlier_unit_with_the_same_name_go_before_ours_come() -> None:
    settled = settle(observe(make_unit(template=HTTP)), **AVAILABLE)
    assert settled.deployment is not None
    ours_is_missing = with_child(settled, UnitChild.DEPLOYMENT, None)
    result = plan(replace(ours_is_missing, leftovers={UnitChild.DEPLOYMENT: settled.deployment}))
    assert result.writes == (DeleteObject(UnitChild.DEPLOYMENT, settled.deployment),)
    assert result.status.phase is Phase.PROGRESSING


def test_a_stopped_unit_keeps_its_objects_with_no_replica() -> None:
    running = settle(observe(make_unit(template=HTTP)), **AVAILABLE)
    result = plan(replace(running, unit=make_unit(template=HTTP, running=False)))
    [scaled] = [write for write in result.writes if isinstance(write, ReplaceObject)]
    assert scaled.body["spec"]["replicas"] == 0
    assert ready_reason(result) == (Phase.PROGRESSING, Reason.STOPPING)
    assert result.status.access_url is None


def test_a_unit_is_stopped_when_its_last_pod_is_gone() -> None:
    running = settle(observe(make_unit(template=HTTP)), **AVAILABLE)
    [pod] = running.pods
    leaving = {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2030-01-01T12:00:00Z"}}
    stopped = replace(running, unit=make_unit(template=HTTP, running=False), pods=(leaving,))
    assert ready_reason(plan(stopped)) == (Phase.PROGRESSING, Reason.STOPPING)
    assert message(plan(stopped)) == "stopping; its pod still holds its GPUs"
    assert ready_reason(plan(replace(stopped, pods=()))) == (Phase.STOPPED, Reason.STOPPED)
    evicted = {**pod, "status": {"phase": "Failed", "reason": "Evicted"}}
    assert ready_reason(plan(replace(stopped, pods=(evicted,)))) == (Phase.STOPPED, Reason.STOPPED)


def handed_off(*, with_pod: bool) -> Observed:
    unit = make_unit()
    unit["metadata"]["annotations"] = {names.ANNOTATION_SOURCE_STOCK_NAME: "pool-0"}
    stock = make_stock(claimed_by="runtime-instance/demo")
    pods = (make_pod("stock-pod"),) if with_pod else ()
    return observe(unit, source=SourceStock(stock, pods, claimed_at=NOW - timedelta(seconds=1)))


def test_the_deployment_waits_for_the_stocks_pod_to_go() -> None:
    result = plan(handed_off(with_pod=True))
    assert [write.kind for write in result.writes if isinstance(write, CreateObject)] == [UnitChild.NETWORK_POLICY]
    assert result.requeue_after == HANDOFF_LIMIT - timedelta(seconds=1)


def test_the_deployment_does_not_wait_for_ever() -> None:
    observed = handed_off(with_pod=True)
    assert observed.source is not None
    late = replace(observed.source, claimed_at=NOW - HANDOFF_LIMIT)
    result = plan(replace(observed, source=late))
    assert UnitChild.DEPLOYMENT in [write.kind for write in result.writes if isinstance(write, CreateObject)]


def test_the_unit_prefers_its_stocks_node_and_keeps_that_wish_when_the_stock_is_gone() -> None:
    observed = handed_off(with_pod=False)
    settled = settle(observed, **AVAILABLE)
    assert settled.deployment is not None
    preferred = settled.deployment["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    assert "sim-h100-0" in str(preferred)
    assert plan(replace(settled, source=None)).writes == ()


def test_claimed_stock_gives_its_gpus_back_and_keeps_its_status() -> None:
    stock = make_stock()
    ready = settle(observe(stock), **AVAILABLE)
    claimed = make_stock(claimed_by="runtime-instance/demo")
    result = plan(replace(ready, unit=claimed, is_claimed_stock=True))
    [scaled] = [write for write in result.writes if isinstance(write, ReplaceObject)]
    assert scaled.body["spec"]["replicas"] == 0
    assert result.status.phase is Phase.READY


def test_claimed_stock_keeps_its_gpus_while_other_stock_lurks_but_not_for_ever() -> None:
    ready = settle(observe(make_stock()), **AVAILABLE)
    claimed = make_stock(claimed_by="runtime-instance/demo")
    lurked = replace(ready, unit=claimed, is_claimed_stock=True, stock_lurks=True)
    result = plan(lurked)
    assert result.writes == ()
    assert result.requeue_after == LURKER_LIMIT - timedelta(seconds=1)
    late = plan_unit(lurked, SETTINGS, NOW + LURKER_LIMIT)
    assert [type(write) for write in late.writes] == [ReplaceObject]


def test_new_stock_gets_no_pod_while_a_hand_off_is_under_way() -> None:
    during = observe(make_stock("pool-9", phase="Progressing"), claims_under_way=(NOW - timedelta(seconds=1),))
    result = plan(during)
    assert [write.kind for write in result.writes if isinstance(write, CreateObject)] == [UnitChild.NETWORK_POLICY]
    assert result.requeue_after == HANDOFF_LIMIT - timedelta(seconds=1)
    after = plan_unit(during, SETTINGS, NOW + HANDOFF_LIMIT)
    assert UnitChild.DEPLOYMENT in [write.kind for write in after.writes if isinstance(write, CreateObject)]


def test_lurking_stock_steps_back_during_a_hand_off_and_comes_again_after_it() -> None:
    unplaced = make_pod(node=None, conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}])
    lurker = replace(settle(observe(make_stock("pool-9"))), pods=(unplaced,))
    during = replace(lurker, claims_under_way=(NOW,))
    [scaled] = [write for write in plan(during).writes if isinstance(write, ReplaceObject)]
    assert scaled.body["spec"]["replicas"] == 0
    held = replace(with_child(during, UnitChild.DEPLOYMENT, as_stored({**scaled.body})), pods=())
    assert plan(held).writes == ()
    [again] = [write for write in plan(replace(held, claims_under_way=())).writes if isinstance(write, ReplaceObject)]
    assert again.body["spec"]["replicas"] == 1


def test_settled_stock_does_not_mind_a_hand_off() -> None:
    settled = replace(settle(observe(make_stock("pool-9")), **AVAILABLE), claims_under_way=(NOW,))
    assert plan(settled).writes == ()


def test_a_new_unit_does_not_say_that_it_starts_unless_it_starts_slowly() -> None:
    young = make_unit(template=HTTP)
    young["metadata"]["creationTimestamp"] = NOW.isoformat()
    quiet = plan(observe(young))
    assert len(quiet.writes) == 3
    assert quiet.status.phase is None
    assert quiet.requeue_after == QUIET_START
    slow = plan_unit(observe(young), SETTINGS, NOW + QUIET_START)
    assert slow.status.phase is Phase.PROGRESSING


def test_a_new_unit_that_fails_or_is_ready_says_so_at_once() -> None:
    young = make_unit(template=HTTP)
    young["metadata"]["creationTimestamp"] = NOW.isoformat()
    assert plan(settle(observe(young), **AVAILABLE)).status.phase is Phase.READY
    assert plan(observe(young, catalogue=None)).status.phase is Phase.FAILED


def test_a_failing_container_is_quoted() -> None:
    container = {
        "name": "runtime-worker",
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
        "lastState": {"terminated": {"exitCode": 3, "reason": "Error", "message": "no model found"}},
    }
    result = plan(replace(settle(observe(make_unit())), pods=(make_pod(containers=[container]),)))
    assert ready_reason(result) == (Phase.FAILED, Reason.POD_STARTUP_FAILED)
    assert message(result) == (
        "Pod unit-demo-1 container runtime-worker: CrashLoopBackOff: no model found – Error (exit code 3)"
    )


def restarted(*, last_seconds: float, run_seconds: float, **container_spec: Any) -> Json:
    """A pod whose container ended after so long, and runs again since so long."""
    ended_at = NOW - timedelta(seconds=run_seconds)
    ended = {"exitCode": 3, "reason": "Error", "message": "no model found"}
    times = {"startedAt": (ended_at - timedelta(seconds=last_seconds)).isoformat(), "finishedAt": ended_at.isoformat()}
    status = {
        "name": "runtime-worker",
        "restartCount": 2,
        "state": {"running": {"startedAt": ended_at.isoformat()}},
        "lastState": {"terminated": {**ended, **times}},
    }
    pod = make_pod(conditions=READY, containers=[status])
    return {**pod, "spec": {**pod["spec"], "containers": [{"name": "runtime-worker", **container_spec}]}}


@pytest.mark.parametrize(
    ("pod", "left"),
    [
        (make_pod(conditions=READY, containers=[{"name": "runtime-worker", "state": {"running": {}}}]), None),
        (restarted(last_seconds=1, run_seconds=0), 10),
        (restarted(last_seconds=1, run_seconds=9), 1),
        (restarted(last_seconds=1, run_seconds=10), None),
        (restarted(last_seconds=30, run_seconds=10), 21),
        (restarted(last_seconds=30, run_seconds=31), None),
        (restarted(last_seconds=540, run_seconds=10), 50),
        (restarted(last_seconds=540, run_seconds=60), None),
        (restarted(last_seconds=600, run_seconds=0), None),
        (restarted(last_seconds=1, run_seconds=0, readinessProbe={}), None),
        (restarted(last_seconds=1, run_seconds=0, startupProbe={}), None),
        (restarted(last_seconds=1, run_seconds=0, livenessProbe={}), 10),
    ],
)
def test_the_table_of_find_trial(pod: Json, left: float | None) -> None:
    assert find_trial(pod, NOW) == (None if left is None else timedelta(seconds=left))


def test_a_crash_loop_without_probes_is_not_ready_between_two_crashes() -> None:
    settled = settle(observe(make_unit()), is_ready=True)
    labels = settled.pods[0]["metadata"]["labels"]
    crashing = restarted(last_seconds=3, run_seconds=2)
    crashing["metadata"]["labels"] = labels
    result = plan(replace(settled, pods=(crashing,)))
    assert ready_reason(result) == (Phase.FAILED, Reason.POD_STARTUP_FAILED)
    assert message(result) == (
        "Pod unit-demo-1 container runtime-worker: restarted 2 times; its last run: "
        "no model found – Error (exit code 3)"
    )
    assert result.requeue_after == timedelta(seconds=8)
    later = plan_unit(replace(settled, pods=(crashing,)), SETTINGS, NOW + timedelta(seconds=8))
    assert later.status.phase is Phase.READY
    assert later.requeue_after is None


def test_a_pod_without_a_place_is_pending_in_the_schedulers_words() -> None:
    conditions = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/5 nodes: no GPU"}
    ]
    result = plan(replace(settle(observe(make_unit())), pods=(make_pod(node=None, conditions=conditions),)))
    assert ready_reason(result) == (Phase.PENDING, Reason.UNSCHEDULABLE)
    assert message(result) == "0/5 nodes: no GPU"


def test_transition_time_stays_while_the_status_stays() -> None:
    observed = settle(observe(make_unit(template=HTTP)), **AVAILABLE)
    first = plan(observed).status
    later = NOW + timedelta(minutes=5)
    stored = replace(observed, unit={**observed.unit, "status": first.to_json()})
    second = plan_unit(stored, SETTINGS, later).status
    assert second.conditions[0].last_transition_time == NOW
    broken = plan_unit(replace(stored, pods=()), SETTINGS, later).status
    assert broken.conditions[0].last_transition_time == later


@pytest.mark.parametrize(
    "edit",
    [
        lambda live: live["spec"].update(replicas=3),
        lambda live: live["spec"]["template"]["spec"]["containers"][0].update(image="evil"),
        lambda live: live["spec"]["template"]["spec"]["containers"][0]["env"].pop(),
        lambda live: live["metadata"].update(labels={}),
        lambda live: live["metadata"].update(ownerReferences=[]),
        lambda live: live["metadata"]["managedFields"].append(
            {"manager": "kubectl-edit", "fieldsV1": {"f:spec": {"f:paused": {}}}}
        ),
        lambda live: live["metadata"]["managedFields"].append(foreign_container_field("f:tty")),
        lambda live: live["metadata"]["managedFields"].append(
            {"manager": "x", "fieldsV1": {"f:spec": {"f:template": {"f:spec": {"f:nodeSelector": {"f:evil": {}}}}}}}
        ),
    ],
)
def test_any_foreign_change_of_a_child_is_put_back(edit: Any) -> None:
    observed = settle(observe(make_unit(template=HTTP)), **AVAILABLE)
    live = copy.deepcopy(observed.deployment)
    edit(live)
    [write] = plan(with_child(observed, UnitChild.DEPLOYMENT, live)).writes
    assert isinstance(write, ReplaceObject)
    assert write.body["metadata"]["resourceVersion"] == "9"
    assert "managedFields" not in write.body["metadata"]
    assert observed.deployment is not None
    assert write.body["spec"] == observed.deployment["spec"]


def test_a_field_that_somebody_owns_together_with_us_is_no_drift() -> None:
    observed = settle(observe(make_unit(template=HTTP)), **AVAILABLE)
    live = copy.deepcopy(observed.deployment)
    assert live is not None
    live["metadata"]["managedFields"].append(foreign_container_field("f:image"))
    assert plan(with_child(observed, UnitChild.DEPLOYMENT, live)).writes == ()


def test_defaults_that_the_api_server_adds_are_no_drift() -> None:
    observed = settle(observe(make_unit(template=HTTP)), **AVAILABLE)
    live = copy.deepcopy(observed.deployment)
    assert live is not None
    live["spec"]["progressDeadlineSeconds"] = 600
    live["spec"]["template"]["spec"]["containers"][0]["terminationMessagePath"] = "/dev/termination-log"
    assert plan(with_child(observed, UnitChild.DEPLOYMENT, live)).writes == ()
