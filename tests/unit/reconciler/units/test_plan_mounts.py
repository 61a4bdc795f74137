"""A unit and its storages: what it may mount, what it waits for, and how its pod gets them."""

from dataclasses import replace
from typing import Any

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.units import Phase, Reason
from reconciler.child_diff import UnitChild
from reconciler.guarded_writes import CreateObject, ReplaceObject
from tests.support.builders import make_storage, make_unit
from tests.unit.reconciler.units.observed import message, observe, plan, ready_reason, settle

MOUNTS = [{"name": "weights", "mountPath": "/data"}]


def storage(name: str = "weights", phase: str = "Ready", held_by: str | None = "unit/demo", **metadata: Any) -> Json:
    made = make_storage(name)
    made["metadata"] |= metadata
    if held_by:
        made["metadata"]["annotations"] = {names.ANNOTATION_MOUNTED_BY: held_by}
    return {**made, "status": {"phase": phase}}


def test_a_held_and_ready_storage_is_a_volume_of_the_pod() -> None:
    mounts = [*MOUNTS, {"name": "logs", "mountPath": "/logs", "readOnly": True}]
    unit = make_unit(storageMounts=mounts, gpu=0)
    observed = observe(unit, storages={"weights": storage(), "logs": storage("logs")})
    [deployment] = [write for write in plan(observed).writes if write_kind(write) is UnitChild.DEPLOYMENT]
    assert isinstance(deployment, CreateObject)
    pod = deployment.body["spec"]["template"]["spec"]
    assert pod["volumes"][1:] == [
        {"name": "storage-0", "persistentVolumeClaim": {"claimName": "weights"}},
        {"name": "storage-1", "persistentVolumeClaim": {"claimName": "logs"}},
    ]
    assert pod["containers"][0]["volumeMounts"][1:] == [
        {"name": "storage-0", "mountPath": "/data"},
        {"name": "storage-1", "mountPath": "/logs", "readOnly": True},
    ]
    assert names.GPU_RESOURCE not in pod["containers"][0]["resources"]["limits"]


@pytest.mark.parametrize(
    "found", [storage(phase="Pending"), storage(phase="Failed"), storage(held_by=None), storage(phase="Terminating")]
)
def test_a_unit_waits_for_a_storage_that_is_not_ready_or_not_yet_its_own(found: Json) -> None:
    result = plan(observe(make_unit(storageMounts=MOUNTS), storages={"weights": found}))
    assert ready_reason(result) == (Phase.PROGRESSING, Reason.STORAGE_NOT_READY)
    assert "weights" in message(result)
    assert UnitChild.DEPLOYMENT not in [write_kind(write) for write in result.writes]


@pytest.mark.parametrize(
    ("storages", "words"),
    [
        ({}, "there is no GPUStorage 'weights'"),
        ({"weights": storage(held_by="unit/other")}, "in use by unit/other"),
        ({"weights": storage(held_by="storage/copy")}, "in use by storage/copy"),
        ({"weights": storage(held_by=None, deletionTimestamp="now")}, "is being deleted"),
    ],
)
def test_a_storage_that_cannot_be_had_is_an_invalid_mount(storages: Json, words: str) -> None:
    result = plan(observe(make_unit(storageMounts=MOUNTS), storages=storages))
    assert ready_reason(result) == (Phase.FAILED, Reason.STORAGE_MOUNT_INVALID)
    assert words in message(result)
    assert result.writes == ()


@pytest.mark.parametrize("path", ["data", "/", "/dev/shm"])
def test_a_path_that_kubectl_wrote_is_checked_too(path: str) -> None:
    mounts = [{"name": "weights", "mountPath": path}]
    result = plan(observe(make_unit(storageMounts=mounts), storages={"weights": storage()}))
    assert ready_reason(result) == (Phase.FAILED, Reason.STORAGE_MOUNT_INVALID)


def test_stock_mounts_nothing() -> None:
    result = plan(observe(make_unit(namespace=names.STOCK_NAMESPACE, storageMounts=MOUNTS)))
    assert ready_reason(result) == (Phase.FAILED, Reason.STORAGE_MOUNT_INVALID)


def test_a_unit_that_runs_goes_on_when_its_storage_is_no_longer_ready() -> None:
    ready = settle(observe(make_unit(storageMounts=MOUNTS), storages={"weights": storage()}), is_ready=True)
    result = plan(replace(ready, storages={"weights": storage(phase="Failed")}))
    assert ready_reason(result) == (Phase.READY, Reason.UNIT_READY)
    assert result.writes == ()


def test_another_mount_is_another_pod() -> None:
    ready = settle(observe(make_unit()), is_ready=True)
    mounted = replace(ready, unit=make_unit(storageMounts=MOUNTS), storages={"weights": storage()})
    [write] = plan(mounted).writes
    assert isinstance(write, ReplaceObject)
    assert write.kind is UnitChild.DEPLOYMENT


def write_kind(write: object) -> UnitChild | None:
    return getattr(write, "kind", None)
