"""A newer version of the platform restarts no running unit: which pod template a Deployment has."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.functions import GPUFunctionSpec
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.units import Phase, Reason
from reconciler.child_diff import UnitChild
from reconciler.guarded_writes import CreateObject, ReplaceObject
from reconciler.pod_templates import RECORD_LIMIT, PodTemplate, choose_template, with_template
from reconciler.units.observe import Observed
from reconciler.units.plan import Plan, UnitSettings, is_made_for_spec, plan_unit
from tests.support.builders import NOW, as_stored, make_pod, make_unit
from tests.support.earlier_version import EARLIER, OLD_GRACE_SECONDS, earlier_deployment, earlier_status
from tests.unit.reconciler.units.observed import READY, SSH, observe, with_child
from tests.unit.reconciler.units.test_plan_mounts import storage
from tests.unit.reconciler.units.test_serverless_resources import SIDECAR

SETTINGS = UnitSettings("busybox:1.36", ("10.0.0.0/8", "fc00::/7"), SSH, SIDECAR)
FUNCTION = GPUFunctionSpec.model_validate({"specName": "g1.1", "image": "example/words", "concurrency": 4})

INPUTS = {"spec": {"image": "example/train"}}
OTHER_INPUTS = {"spec": {"image": "example/other"}}


def template(label: str, **spec: Any) -> Json:
    return {"metadata": {"labels": {names.LABEL_TEMPLATE: label}}, "spec": {"containers": [], **spec}}


TODAY = template("today", hostUsers=False)
OLD = template("old")


def made_with(body: Json, inputs: Json = INPUTS, replicas: int = 1) -> Json:
    """The Deployment that was made with this template, and carries the record of it."""
    record = choose_template(body, inputs, None, replicas=1, is_made_for_inputs=True)
    deployment = {"metadata": {"name": "unit-demo"}, "spec": {"replicas": replicas}}
    return as_stored(with_template(deployment, record))


def without_record(live: Json) -> Json:
    return as_stored({**live, "metadata": {"name": "unit-demo"}})


def with_edited_record(live: Json) -> Json:
    """Another writer has changed the annotation, and owns it since."""
    live = copy.deepcopy(live)
    [entry] = live["metadata"]["managedFields"]
    entry["fieldsV1"]["f:metadata"] = {}
    evil = with_template(live, PodTemplate(template("evil"), '{"inputs":"","template":{}}'))
    live["metadata"]["annotations"] = evil["metadata"]["annotations"]
    return live


def edited_by_hand(live: Json, field: str = "f:hostPID") -> Json:
    live = copy.deepcopy(live)
    fields: Json = {"f:spec": {"f:template": {"f:spec": {field: {}}}}}
    live["metadata"]["managedFields"].append({"manager": "kubectl-edit", "fieldsV1": fields})
    return live


@pytest.mark.parametrize(
    ("live", "replicas", "is_made_for_inputs", "chosen"),
    [
        pytest.param(None, 1, True, TODAY, id="no Deployment"),
        pytest.param(made_with(OLD, replicas=0), 1, True, TODAY, id="to be started"),
        pytest.param(made_with(OLD, replicas=0), 0, True, OLD, id="stopped"),
        pytest.param(made_with(OLD), 0, True, OLD, id="to be stopped"),
        pytest.param(made_with(OLD), 1, False, OLD, id="same inputs"),
        pytest.param(made_with(TODAY), 1, False, TODAY, id="same version"),
        pytest.param(made_with(OLD, OTHER_INPUTS), 1, True, TODAY, id="other inputs"),
        pytest.param(edited_by_hand(made_with(OLD)), 1, True, OLD, id="same inputs, edited by hand"),
        pytest.param(without_record(made_with(TODAY)), 1, True, TODAY, id="no record, label of today"),
        pytest.param(without_record(made_with(OLD)), 1, True, OLD, id="no record, same inputs"),
        pytest.param(without_record(made_with(OLD)), 1, False, TODAY, id="no record, other inputs"),
        pytest.param(edited_by_hand(without_record(made_with(OLD))), 1, True, TODAY, id="no record, edited"),
        pytest.param(with_edited_record(made_with(OLD)), 1, True, OLD, id="edited record, same inputs"),
        pytest.param(with_edited_record(made_with(OLD)), 1, False, TODAY, id="edited record, other inputs"),
    ],
)
def test_the_table_of_choose_template(live: Json | None, replicas: int, is_made_for_inputs: bool, chosen: Json) -> None:
    result = choose_template(TODAY, INPUTS, live, replicas=replicas, is_made_for_inputs=is_made_for_inputs)

    assert result.body == chosen
    assert result == choose_template(chosen, INPUTS, None, replicas=1, is_made_for_inputs=True)


def test_a_field_that_another_writer_set_to_our_value_is_no_edit() -> None:
    live = edited_by_hand(without_record(made_with(OLD)), "f:containers")
    live["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"] = {"f:template": {"f:spec": {"f:containers": {}}}}

    assert choose_template(TODAY, INPUTS, live, replicas=1, is_made_for_inputs=True).body == OLD


def test_a_template_that_is_too_long_for_an_annotation_has_no_record() -> None:
    long = template("old", hostname="x" * RECORD_LIMIT)
    live = made_with(long)

    assert names.ANNOTATION_TEMPLATE not in live["metadata"].get("annotations", {})
    assert choose_template(TODAY, INPUTS, live, replicas=1, is_made_for_inputs=True) == PodTemplate(long, None)


@pytest.mark.parametrize(
    ("generation", "observed", "reason", "is_made"),
    [
        (1, None, None, True),
        (2, None, None, False),
        (2, 1, Reason.UNIT_READY, False),
        (2, 2, Reason.UNIT_READY, True),
        (2, 2, Reason.UNIT_PROGRESSING, True),
        (1, 1, Reason.STOCK_READY, True),
        (1, 1, Reason.STOCK_NOT_READY, True),
        (2, 2, Reason.STORAGE_NOT_READY, False),
        (2, 2, Reason.POD_STARTUP_FAILED, False),
        (2, 2, Reason.UNIT_DEPLOYMENT_SYNC_FAILED, False),
    ],
)
def test_what_a_status_says_about_the_deployment(
    generation: int, observed: int | None, reason: Reason | None, is_made: bool
) -> None:
    unit = make_unit()
    unit["metadata"]["generation"] = generation
    unit["status"] = status_of(observed, reason)

    assert is_made_for_spec(unit) is is_made


def status_of(observed: int | None, reason: Reason | None) -> Json:
    condition = {"type": "Ready", "status": "True", "reason": reason, "lastTransitionTime": NOW.isoformat()}
    return {"observedGeneration": observed, "conditions": [{**condition, "message": "runs"}] if reason else []}


def observe_earlier(case: str, *, older: bool = False) -> Observed:
    deployment = earlier_deployment(case, older=older)
    metadata = deployment["metadata"]
    unit = make_unit(metadata["labels"][names.LABEL_UNIT], metadata["namespace"])
    unit |= {"spec": EARLIER[case]["spec"], "status": earlier_status(case)}
    observed = observe(
        unit,
        pods=(make_pod(conditions=READY, labels=deployment["spec"]["template"]["metadata"]["labels"]),),
        storages={"weights": storage()},
        function=FUNCTION if case == "worker" else None,
        token_secret={"metadata": {}},
    )
    return with_child(observed, UnitChild.DEPLOYMENT, as_stored(deployment))


def plan(observed: Observed) -> Plan:
    return plan_unit(observed, SETTINGS, NOW)


def written_deployments(result: Plan) -> list[Json]:
    writes = [write for write in result.writes if isinstance(write, CreateObject | ReplaceObject)]
    return [write.body for write in writes if write.kind is UnitChild.DEPLOYMENT]


def adopt(observed: Observed) -> Observed:
    """The same after the first pass of this version."""
    [adopted] = written_deployments(plan(observed))
    return with_child(observed, UnitChild.DEPLOYMENT, as_stored(adopted))


@pytest.mark.parametrize("older", [False, True], ids=["0.1.0", "older"])
@pytest.mark.parametrize("case", EARLIER)
def test_a_unit_of_an_earlier_version_keeps_its_template_and_is_quiet(case: str, older: bool) -> None:
    observed = observe_earlier(case, older=older)
    assert observed.deployment is not None
    first = plan(observed)
    [adopted] = written_deployments(first)
    assert adopted["spec"]["template"] == observed.deployment["spec"]["template"]
    assert first.status.phase is Phase.READY

    second = plan(with_child(observed, UnitChild.DEPLOYMENT, as_stored(adopted)))
    assert written_deployments(second) == []
    assert second.status.phase is Phase.READY


UPDATES: dict[str, Callable[[Json], Json]] = {
    "image": lambda spec: {**spec, "image": "example/newer"},
    "restart": lambda spec: {**spec, "restarts": spec.get("restarts", 0) + 1},
    "template": lambda spec: {**spec, "template": {**spec.get("template", {}), "args": ["--fast"]}},
}


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("case", ["plain", "full", "worker"])
def test_an_update_brings_todays_template(case: str, update: str) -> None:
    adopted = adopt(observe_earlier(case, older=True))
    unit = {**adopted.unit, "spec": UPDATES[update](adopted.unit["spec"])}

    [deployment] = written_deployments(plan(replace(adopted, unit=unit)))
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] != OLD_GRACE_SECONDS


@pytest.mark.parametrize("is_adopted", [True, False], ids=["after the upgrade", "during it"])
def test_a_change_of_the_function_brings_todays_template(is_adopted: bool) -> None:
    earlier = observe_earlier("worker", older=True)
    adopted = adopt(earlier) if is_adopted else earlier
    changed = replace(adopted, function=FUNCTION.model_copy(update={"concurrency": 8}))

    [deployment] = written_deployments(plan(changed))
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] != OLD_GRACE_SECONDS


def test_a_change_that_is_not_of_the_pod_restarts_nothing() -> None:
    adopted = adopt(observe_earlier("full", older=True))
    unit = {**adopted.unit, "spec": {**adopted.unit["spec"], "access": {"primaryPort": "http", "scheme": "https"}}}

    assert written_deployments(plan(replace(adopted, unit=unit))) == []


def test_a_stop_keeps_the_template_and_the_next_start_brings_todays() -> None:
    adopted = adopt(observe_earlier("plain", older=True))
    assert adopted.deployment is not None
    stopped = {**adopted.unit, "spec": {**adopted.unit["spec"], "running": False}}
    [at_zero] = written_deployments(plan(replace(adopted, unit=stopped)))
    assert at_zero["spec"]["replicas"] == 0
    assert at_zero["spec"]["template"] == adopted.deployment["spec"]["template"]

    asleep = replace(with_child(adopted, UnitChild.DEPLOYMENT, as_stored(at_zero)), pods=())
    assert written_deployments(plan(replace(asleep, unit=stopped))) == []
    [started] = written_deployments(plan(asleep))
    assert started["spec"]["replicas"] == 1
    assert started["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] != OLD_GRACE_SECONDS


@pytest.mark.parametrize("case", EARLIER)
def test_an_edit_by_hand_is_put_back_to_the_old_template(case: str) -> None:
    adopted = adopt(observe_earlier(case, older=True))
    assert adopted.deployment is not None
    for edit in (edit_image, remove_variable):
        live = copy.deepcopy(adopted.deployment)
        edit(live["spec"]["template"]["spec"]["containers"][0])
        [back] = written_deployments(plan(with_child(adopted, UnitChild.DEPLOYMENT, live)))
        assert back["spec"]["template"] == adopted.deployment["spec"]["template"]


def edit_image(container: Json) -> None:
    container["image"] = "evil"


def remove_variable(container: Json) -> None:
    container["env"].pop()


def test_changed_settings_of_the_platform_restart_nothing() -> None:
    newer = replace(SETTINGS, placeholder_image="busybox:2", sidecar=replace(SIDECAR, image="gpu-platform:2"))
    for case in EARLIER:
        adopted = adopt(observe_earlier(case))
        assert written_deployments(plan_unit(adopted, newer, NOW)) == []


RECORDED_INPUTS = {
    "plain": "cc0ef697f775ffb7",
    "full": "ea6d5be456c4eb42",
    "placeholder": "f749145112b6604b",
    "worker": "62b240b72e6d4d24",
    "stock": "e0fd05631b4d4806",
}
"""As they stand in the records of Deployments. Another hash for the same unit restarts every unit at the next upgrade:
give a new field a default, and leave the defaults of fields as they are."""


@pytest.mark.parametrize("case", EARLIER)
def test_the_recorded_inputs_of_a_unit_stay_the_same(case: str) -> None:
    deployment = adopt(observe_earlier(case)).deployment
    assert deployment is not None
    record = json.loads(deployment["metadata"]["annotations"][names.ANNOTATION_TEMPLATE])

    assert record["inputs"] == RECORDED_INPUTS[case]
