"""What becomes of an object that is there already, and which difference needs another object."""

from typing import Any

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stacks import accepted_hash
from gpu_platform.domain.units import GPUUnitSpec, accepted_text
from gpu_platform.pulumi_protocol import properties as diffing
from gpu_platform.pulumi_protocol.properties import UNKNOWN, Path, Properties
from gpu_platform.pulumi_protocol.resource import Resource
from providers.cluster.inputs import check_inputs, find_difference
from providers.cluster.kinds import KINDS, Kind, parse_id
from providers.cluster.objects import Wanted, build_object, build_planned_outputs, build_wanted, observe_object
from providers.cluster.plan import Change, Keep, Make, Refuse, plan_create, plan_update
from providers.cluster.resources import GPU_SPEC, GPU_STORAGE, GPU_UNIT, STOCK_POOL
from tests.support.builders import make_stock

UNIT, STORAGE, POOL, SPEC = KINDS[GPU_UNIT], KINDS[GPU_STORAGE], KINDS[STOCK_POOL], KINDS[GPU_SPEC]
OURS = Resource("urn:pulumi:default.web::gpu-unit::gpuplatform:index:GpuUnit::web", GPU_UNIT)
THEIRS = Resource("urn:pulumi:prod::shop::gpuplatform:index:GpuUnit::web", GPU_UNIT)
UID = "5f2b"


def inputs_of(**spec: Any) -> Json:
    checked = check_inputs(UNIT, {"name": "web", "spec": {"specName": "g1.1", "image": "example/web", **spec}})
    assert checked.failures == ()
    return checked.inputs


def wanted(resource: Resource = OURS, **spec: Any) -> Wanted:
    return build_wanted(UNIT, resource, inputs_of(**spec))


def live(resource: Resource = OURS, spec: Json | None = None, **accepted: Any) -> Json:
    """The unit as it was accepted; with another `spec` if somebody edited it."""
    item = build_object(wanted(resource, **accepted), None)
    item["metadata"] |= {"uid": UID, "resourceVersion": "7"}
    return {**item, "spec": {**item["spec"], **(spec or {})}}


def unaccepted() -> Json:
    item = live()
    del item["metadata"]["annotations"][names.ANNOTATION_ACCEPTED_SPEC]
    return item


def going() -> Json:
    item = live()
    item["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return item


def hash_of(**spec: Any) -> str:
    return accepted_hash(accepted_text(wanted(**spec).spec))


def test_what_is_not_there_is_made() -> None:
    assert plan_create(wanted(), None) == Make()


@pytest.mark.parametrize("resource", [OURS, THEIRS])
def test_what_was_accepted_the_same_is_adopted_even_after_an_edit(resource: Resource) -> None:
    for there in (live(resource), live(resource, {"image": "example/edited"})):
        assert plan_create(wanted(resource), there) == Keep(there)


@pytest.mark.parametrize(
    ("resource", "there", "reason"),
    [
        (OURS, going(), "is being deleted"),
        (OURS, unaccepted(), "was made by hand"),
        (OURS, live(image="example/other"), "with another accepted spec"),
        (OURS, live(THEIRS), "belongs to the Pulumi stack shop/prod"),
        (THEIRS, live(), "no program has declared it; take it over with `pulumi import`"),
    ],
)
def test_what_is_not_the_same_is_refused(resource: Resource, there: Json, reason: str) -> None:
    plan = plan_create(wanted(resource), there)

    assert isinstance(plan, Refuse)
    assert reason in plan.reason
    assert plan.reason.startswith("GPUUnit runtime-instance/web ")


def test_an_update_writes_only_over_what_the_state_has_recorded() -> None:
    there = live(THEIRS)

    assert plan_update(wanted(THEIRS, image="example/new"), there, UID, hash_of()) == Change(there)


def test_the_platforms_own_stack_takes_nothing_back_even_if_it_is_as_it_was_once() -> None:
    """Stopped, and started again before the stop was recorded: what is accepted is what was recorded before."""
    plan = plan_update(wanted(running=False), live(), UID, hash_of())

    assert isinstance(plan, Refuse)
    assert "was changed since" in plan.reason


def test_an_update_that_was_accepted_already_writes_nothing() -> None:
    there = live(image="example/new")

    assert plan_update(wanted(image="example/new"), there, "another", hash_of()) == Keep(there)


def test_an_edit_of_what_was_accepted_is_put_back() -> None:
    there = live(spec={"image": "example/edited"})

    assert plan_update(wanted(), there, UID, hash_of()) == Change(there)


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        (None, "is gone"),
        (live(image="example/accepted-since"), "was changed since"),
        ({**live(), "metadata": {**live()["metadata"], "uid": "new"}}, "was changed since"),
        (going(), "is being deleted"),
        (live(THEIRS), "it belongs to shop/prod"),
        (unaccepted(), "was changed since"),
    ],
)
def test_an_update_never_takes_back_what_somebody_was_promised(there: Json | None, reason: str) -> None:
    plan = plan_update(wanted(image="example/new"), there, UID, hash_of())

    assert isinstance(plan, Refuse)
    assert reason in plan.reason


def test_what_was_imported_without_being_accepted_is_taken_over_by_an_update() -> None:
    there = unaccepted()

    assert plan_update(wanted(THEIRS), there, UID, "") == Change(there)
    assert find_difference(UNIT, inputs_of(), {"acceptedHash": ""}, inputs_of()).changes == {
        ("acceptedHash",): diffing.Change.UPDATE
    }


def test_a_new_unit_says_what_was_accepted_where_it_is_from_and_whose_it_is() -> None:
    stock = make_stock("warm-1")
    own, foreign = build_object(wanted(), stock), build_object(wanted(THEIRS), None)

    annotations = own["metadata"]["annotations"]
    assert annotations[names.ANNOTATION_ACCEPTED_SPEC] == accepted_text(GPUUnitSpec.model_validate(own["spec"]))
    assert annotations[names.ANNOTATION_SOURCE_STOCK_NAME] == "warm-1"
    assert names.ANNOTATION_OWNER_STACK not in annotations
    assert foreign["metadata"]["annotations"][names.ANNOTATION_OWNER_STACK] == "shop/prod"
    assert foreign["metadata"]["annotations"][names.ANNOTATION_OPERATION_ID].startswith("pulumi-")


@pytest.mark.parametrize(
    ("kind", "old", "new", "replacing"),
    [
        (UNIT, {"name": "a"}, {"name": "b"}, {("name",)}),
        (UNIT, {"tenant": "a"}, {"tenant": "b"}, {("tenant",)}),
        (UNIT, {"spec": {"specName": "a"}}, {"spec": {"specName": "b"}}, {("spec", "specName")}),
        (UNIT, {"spec": {"memory": "1Gi"}}, {"spec": {"memory": "2Gi"}}, {("spec", "memory")}),
        (UNIT, {"spec": {"gpu": 1}}, {"spec": {}}, {("spec", "gpu")}),
        (STORAGE, {"spec": {"storageClassName": "a"}}, {"spec": {}}, {("spec", "storageClassName")}),
        (STORAGE, {"spec": {}}, {"spec": {"prepare": {"fromImage": "a"}}}, {("spec", "prepare")}),
        # Refused by the API server when it is tried, and no reason to throw the data away.
        (STORAGE, {"spec": {"size": "2Gi"}}, {"spec": {"size": "1Gi"}}, set()),
        (STORAGE, {"spec": {"retain": True}}, {"spec": {"retain": False}}, set()),
        (UNIT, {"spec": {}}, {"spec": {"gpu": 1}}, set()),
        (UNIT, {"spec": {"image": "a"}}, {"spec": {"image": "b"}}, set()),
        (POOL, {"spec": {"specName": "a"}}, {"spec": {"specName": "b"}}, {("spec", "specName")}),
        (POOL, {"spec": {"replicas": 1}}, {"spec": {"replicas": 2}}, set()),
        (SPEC, {"spec": {"nodeSelector": {"a": "b"}}}, {"spec": {"nodeSelector": {}}}, {("spec", "nodeSelector", "a")}),
        (SPEC, {"spec": {"pricePerHour": "1"}}, {"spec": {"pricePerHour": "2"}}, set()),
    ],
)
def test_only_what_an_object_keeps_for_life_replaces_it(kind: Kind, old: Json, new: Json, replacing: set[Path]) -> None:
    difference = find_difference(kind, old, {}, new)

    assert difference.changes
    assert difference.replacing == replacing
    assert difference.delete_first is bool(replacing)


def test_where_an_object_comes_from_makes_no_difference() -> None:
    old, new = {"name": "a", "operationID": "1"}, {"name": "a", "operationID": "2", "requestHash": "f"}

    assert find_difference(UNIT, old, {"acceptedHash": "f"}, new).changes == {}


def test_an_object_is_read_as_it_is_and_without_what_changes_by_itself() -> None:
    there = {**live(spec={"image": "example/edited"}), "status": {"phase": "Ready"}}
    observed = observe_object(UNIT, there, Properties(inputs_of(), frozenset({("spec", "image")})))

    assert observed.id == "runtime-instance/web"
    assert observed.inputs.tree == inputs_of(image="example/edited")
    assert observed.inputs.secrets == {("spec", "image")}
    assert observed.outputs.tree == {
        **observed.inputs.tree,
        "namespace": "runtime-instance",
        "uid": UID,
        "acceptedHash": hash_of(),
    }


def test_an_import_reads_where_the_object_comes_from() -> None:
    observed = observe_object(UNIT, live(), Properties({}))

    assert observed.inputs.tree["operationID"].startswith("pulumi-")


def test_a_preview_promises_only_what_it_can_know() -> None:
    known = build_planned_outputs(UNIT, Properties(inputs_of()), {"uid": UID}).tree
    unknown = build_planned_outputs(UNIT, Properties({**inputs_of(image="x"), "spec": UNKNOWN})).tree

    assert (known["uid"], known["acceptedHash"], known["namespace"]) == (UID, hash_of(), "runtime-instance")
    assert (unknown["uid"], unknown["acceptedHash"]) == (UNKNOWN, UNKNOWN)


@pytest.mark.parametrize(
    ("kind", "text", "place"),
    [
        (UNIT, "runtime-instance-acme/web", ("runtime-instance-acme", "web")),
        (UNIT, "web", ("runtime-instance", "web")),
        (POOL, "runtime-stock/warm", ("runtime-stock", "warm")),
        (POOL, "warm", ("runtime-stock", "warm")),
        (SPEC, "g1.1", (None, "g1.1")),
    ],
)
def test_an_id_says_where_an_object_is(kind: Kind, text: str, place: tuple[str | None, str]) -> None:
    assert parse_id(kind, text) == place


@pytest.mark.parametrize(
    ("kind", "text"), [(UNIT, "kube-system/web"), (UNIT, "runtime-stock/warm-0"), (UNIT, "../web"), (SPEC, "a/b")]
)
def test_an_id_of_somewhere_else_is_refused(kind: Kind, text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        parse_id(kind, text)


def test_a_storage_is_made_with_what_protects_it() -> None:
    checked = check_inputs(STORAGE, {"name": "weights", "spec": {"size": "1Gi"}})
    made = build_object(build_wanted(STORAGE, THEIRS, checked.inputs), None)
    assert made["metadata"]["finalizers"] == [names.STORAGE_FINALIZER]
    assert "finalizers" not in build_object(wanted(), None)["metadata"]
