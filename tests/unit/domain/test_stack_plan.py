"""What is done when the three records differ: every combination is answered by exactly one row of the table."""

import itertools
import json
from datetime import UTC, datetime

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.drift import Difference, find_differences
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stack_plan import Action, Records, plan_stack
from gpu_platform.domain.stacks import (
    Recorded,
    StackAddress,
    StackKind,
    StackRecord,
    address_of,
    as_accepted,
    intent_of,
    parse_address,
    parse_record,
    record_annotations,
    record_labels,
)
from gpu_platform.domain.units import GPUUnitSpec, accepted_text

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
ADDRESS = StackAddress(StackKind.GPU_UNIT, "default", "train")
SPEC = GPUUnitSpec(spec_name="g1.1", image="example/train")
OTHER_SPEC = SPEC.model_copy(update={"image": "example/other"})


def unit(
    uid: str = "u1",
    accepted: GPUUnitSpec | None = SPEC,
    spec: GPUUnitSpec = SPEC,
    *,
    going: bool = False,
    owner: str | None = None,
) -> Json:
    annotations = {names.ANNOTATION_OWNER_STACK: owner} if owner else {}
    if accepted is not None:
        annotations[names.ANNOTATION_ACCEPTED_SPEC] = accepted_text(accepted)
    metadata: Json = {"name": "train", "namespace": "runtime-instance", "uid": uid, "annotations": annotations}
    if going:
        metadata["deletionTimestamp"] = "2026-11-16T12:00:00Z"
    return {"kind": "GPUUnit", "metadata": metadata, "spec": spec.to_json()}


def stack(uid: str = "u1", recorded: GPUUnitSpec | None = SPEC) -> StackRecord:
    said = Recorded(accepted_text(recorded), "op-1", "hash", NOW) if recorded else None
    return StackRecord(ADDRESS, uid, said)


UNITS: dict[str, Json | None] = {
    "none": None,
    "made by kubectl": unit(accepted=None),
    "owned": unit(owner="shop/prod"),
    "going": unit(going=True),
    "edited": unit(spec=OTHER_SPEC),
    "accepted": unit(),
    "of another uid": unit(uid="u2"),
}
STACKS: dict[str, StackRecord | None] = {
    "none": None,
    "begun": stack(recorded=None),
    "recorded other": stack(recorded=OTHER_SPEC),
    "recorded": stack(),
}


def expected(of_unit: str, of_stack: str, *, end_asked: bool, accepted: bool) -> Action:
    """The table once more, as a list of rows: what the first fitting one says."""
    has_stack = of_stack != "none"
    rows = (
        (of_unit == "none" and not has_stack, Action.NOTHING),
        (of_unit == "none" and (end_asked or of_stack == "begun"), Action.REMOVE),
        (of_unit == "none", Action.PUT_BACK if accepted else Action.NOTHING),
        (of_unit == "of another uid" and has_stack, Action.REMOVE),
        (of_unit in ("made by kubectl", "owned"), Action.NOTHING),
        (of_unit == "going", Action.WAIT),
        (end_asked, Action.DELETE),
        (of_unit == "edited", Action.REVERT),
        (of_stack == "recorded", Action.NOTHING),
        (True, Action.RECORD),
    )
    return next(action for fits, action in rows if fits)


@pytest.mark.parametrize(
    ("of_unit", "of_stack", "end_asked", "accepted"),
    list(itertools.product(UNITS, STACKS, (False, True), (False, True))),
)
def test_every_combination_of_the_records_has_one_answer(
    of_unit: str, of_stack: str, end_asked: bool, accepted: bool
) -> None:
    records = Records(UNITS[of_unit], STACKS[of_stack], end_asked, accepted)
    assert plan_stack(records) is expected(of_unit, of_stack, end_asked=end_asked, accepted=accepted)


def test_a_default_that_the_api_server_says_is_no_edit() -> None:
    item = unit()
    item["spec"] = {"running": True, "restarts": 0, **item["spec"]}
    assert plan_stack(Records(item, stack())) is Action.NOTHING


def test_a_spec_that_nobody_can_read_is_put_back() -> None:
    item = unit()
    item["spec"] = {"specName": 7}
    assert plan_stack(Records(item, stack())) is Action.REVERT


def test_the_entry_of_a_stack_says_what_was_recorded() -> None:
    recorded = Recorded(accepted_text(SPEC), "op-1", "hash", NOW, resources=1, outputs={"uid": "u1"})
    record = StackRecord(ADDRESS, "u1", recorded, error="the backend is away", failures=3)
    lease = {"metadata": {"labels": record_labels(ADDRESS), "annotations": record_annotations(record)}}
    assert parse_record(lease) == record
    assert record.intent is not None
    assert record.intent.spec == SPEC.to_json()


@pytest.mark.parametrize(
    "lease",
    [
        {"metadata": {}},
        {"metadata": {"labels": {**record_labels(ADDRESS)}}},
        {"metadata": {"labels": record_labels(ADDRESS) | {"runtime.lokiwager.io/stack-kind": "ship"}}},
    ],
)
def test_a_lease_that_is_not_of_the_index_is_left_alone(lease: Json) -> None:
    assert parse_record(lease) is None


def test_stacks_of_one_name_in_two_tenants_or_kinds_are_two() -> None:
    addresses = [
        StackAddress(StackKind.GPU_UNIT, "default", "a"),
        StackAddress(StackKind.GPU_UNIT, "default-a", "a"),
        StackAddress(StackKind.STOCK_POOL, "stock", "a"),
        StackAddress(StackKind.GPU_UNIT, "stock", "a"),
        StackAddress(StackKind.GPU_STORAGE, "default", "a"),
        StackAddress(StackKind.GPU_FUNCTION, "default", "a"),
    ]
    assert len({address.lease for address in addresses}) == len(addresses)
    for address in addresses:
        assert parse_address(address.project, address.stack) == address


@pytest.mark.parametrize(
    ("kind", "namespace", "address"),
    [
        ("GPUUnit", "runtime-instance", StackAddress(StackKind.GPU_UNIT, "default", "a")),
        ("GPUUnit", "runtime-instance-acme", StackAddress(StackKind.GPU_UNIT, "acme", "a")),
        ("GPUUnit", "runtime-stock", None),
        ("GPUUnit", "kube-system", None),
        ("GPUStorage", "runtime-instance-acme", StackAddress(StackKind.GPU_STORAGE, "acme", "a")),
        ("GPUStorage", "runtime-stock", None),
        ("GPUFunction", "runtime-instance-acme", StackAddress(StackKind.GPU_FUNCTION, "acme", "a")),
        ("GPUFunction", "runtime-stock", None),
        ("StockPool", "runtime-stock", StackAddress(StackKind.STOCK_POOL, "stock", "a")),
        ("Deployment", "runtime-instance", None),
    ],
)
def test_only_what_tenants_have_and_pools_have_stacks(kind: str, namespace: str, address: StackAddress | None) -> None:
    assert address_of({"kind": kind, "metadata": {"name": "a", "namespace": namespace}}) == address
    assert address is None or address.namespace == namespace


def test_an_accepted_spec_that_is_no_json_object_is_no_intent() -> None:
    for text in ("", "[]", "{"):
        item = unit()
        item["metadata"]["annotations"][names.ANNOTATION_ACCEPTED_SPEC] = text
        assert intent_of(item) is None
    assert intent_of(unit()) is not None
    assert json.loads(accepted_text(SPEC)) == SPEC.to_json()


@pytest.mark.parametrize(
    ("found", "fields"),
    [
        (SPEC.to_json(), []),
        (SPEC.to_json() | {"running": True}, []),
        ({"specName": "g1.1", "image": "example/train"}, []),
        (SPEC.to_json() | {"image": "example/other"}, ["spec.image"]),
        (SPEC.to_json() | {"gpu": 4, "running": False}, ["spec.gpu", "spec.running"]),
        (SPEC.to_json() | {"template": {"args": ["-v"]}}, ["spec.template.args"]),
        ({"specName": "g1.1"}, ["spec.image"]),
        (SPEC.to_json() | {"gpu": "many"}, ["spec.gpu"]),
    ],
)
def test_a_difference_is_named_by_its_field_and_a_default_that_is_not_said_is_none(
    found: Json, fields: list[str]
) -> None:
    item = unit() | {"spec": found}
    intent = intent_of(item)
    assert intent is not None

    assert [difference.field for difference in find_differences(item, intent)] == fields


def test_a_difference_says_both_values() -> None:
    item = unit(spec=OTHER_SPEC)
    intent = intent_of(item)
    assert intent is not None

    assert find_differences(item, intent) == (Difference("spec.image", "example/train", "example/other"),)


def test_an_edited_object_is_read_as_it_was_accepted_and_any_other_as_it_is() -> None:
    assert as_accepted(unit(spec=OTHER_SPEC))["spec"] == SPEC.to_json()
    for item in (unit(accepted=None, spec=OTHER_SPEC), unit(spec=OTHER_SPEC, owner="shop/prod")):
        assert as_accepted(item) is item
