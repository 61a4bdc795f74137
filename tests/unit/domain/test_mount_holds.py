"""Who may mount a storage, and how long it is held for whom."""

from datetime import timedelta

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.mount_holds import (
    HOLD_GRACE,
    ConfirmHold,
    EndHold,
    Hold,
    Holder,
    HolderKind,
    HoldPlan,
    KeepHold,
    build_hold,
    hold_of,
    is_holdable,
    mounting_unit_of,
    plan_hold,
    unit_holder,
    will_release,
)
from tests.support.builders import NOW, make_storage

TRAIN = unit_holder("train")
COPY = Holder(HolderKind.STORAGE, "copy")
SECOND = timedelta(seconds=1)


def held_by(holder: Holder, uid: str | None = None) -> Json:
    storage = make_storage()
    changes = build_hold(storage, holder, NOW)
    annotations = {**changes["annotations"], names.ANNOTATION_MOUNTED_UID: uid}
    storage["metadata"]["annotations"] = {key: value for key, value in annotations.items() if value is not None}
    return storage


def test_a_hold_is_read_as_it_was_written() -> None:
    assert hold_of(held_by(TRAIN)) == Hold(TRAIN, NOW, None)
    assert hold_of(held_by(COPY, "uid-copy")) == Hold(COPY, NOW, "uid-copy")
    assert (mounting_unit_of(held_by(TRAIN)), mounting_unit_of(held_by(COPY))) == ("train", None)


@pytest.mark.parametrize("text", ["", "unit/", "pod/a", "train"])
def test_a_text_that_nobody_of_us_wrote_holds_nothing(text: str) -> None:
    storage = make_storage()
    storage["metadata"]["annotations"] = {names.ANNOTATION_MOUNTED_BY: text}
    assert hold_of(storage) is None


def test_a_hold_without_an_instant_has_no_grace() -> None:
    storage = make_storage()
    storage["metadata"]["annotations"] = {names.ANNOTATION_MOUNTED_BY: "unit/train"}
    hold = hold_of(storage)
    assert hold is not None
    assert plan_hold(hold, None, NOW) == EndHold()


@pytest.mark.parametrize(
    ("storage", "may"),
    [
        (make_storage(), True),
        (held_by(TRAIN), True),
        (held_by(TRAIN, "uid-train"), True),
        (held_by(unit_holder("other")), False),
        (held_by(Holder(HolderKind.STORAGE, "train")), False),
    ],
)
def test_a_storage_is_taken_by_one_holder_at_a_time(storage: Json, *, may: bool) -> None:
    assert is_holdable(storage, TRAIN) is may


def test_a_storage_on_its_way_out_is_not_taken() -> None:
    storage = make_storage()
    storage["metadata"]["deletionTimestamp"] = "now"
    assert not is_holdable(storage, TRAIN)


def test_what_is_held_is_protected_and_other_finalizers_stay() -> None:
    storage = make_storage()
    storage["metadata"]["finalizers"] = ["example.com/other"]
    assert build_hold(storage, TRAIN, NOW)["finalizers"] == ["example.com/other", names.STORAGE_FINALIZER]
    assert build_hold(make_storage(), TRAIN, NOW)["finalizers"] == [names.STORAGE_FINALIZER]


@pytest.mark.parametrize(
    ("confirmed", "needed_by", "age", "plan"),
    [
        (None, "uid-a", SECOND, ConfirmHold("uid-a")),
        (None, "uid-a", HOLD_GRACE * 2, ConfirmHold("uid-a")),
        ("uid-a", "uid-a", SECOND, KeepHold()),
        ("uid-a", "uid-b", SECOND, ConfirmHold("uid-b")),
        ("uid-a", None, SECOND, EndHold()),
        (None, None, SECOND, KeepHold(NOW - SECOND + HOLD_GRACE)),
        (None, None, HOLD_GRACE, EndHold()),
    ],
)
def test_a_hold_lasts_as_long_as_it_is_needed(
    confirmed: str | None, needed_by: str | None, age: timedelta, plan: HoldPlan
) -> None:
    assert plan_hold(Hold(TRAIN, NOW - age, confirmed), needed_by, NOW) == plan


MOUNTED = [{"name": "weights", "mountPath": "/weights"}]


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        pytest.param(None, True, id="gone"),
        pytest.param({"phase": "Terminating", "storageMounts": MOUNTED}, True, id="being deleted"),
        pytest.param({"phase": "Ready", "storageMounts": []}, True, id="unmounted"),
        pytest.param({"phase": "Ready", "storageMounts": [{"name": "other"}]}, True, id="mounts another"),
        pytest.param({"phase": "Ready", "storageMounts": MOUNTED}, False, id="mounts it"),
        pytest.param({"phase": "Stopped", "storageMounts": MOUNTED}, False, id="stopped"),
        pytest.param({"phase": "Failed", "storageMounts": MOUNTED}, False, id="failed"),
    ],
)
def test_a_unit_releases_a_storage_that_it_needs_no_more(unit: Json | None, expected: bool) -> None:
    assert will_release(unit, "weights") is expected
