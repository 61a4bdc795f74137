"""Deleting a storage: as soon as its unit has released it, where that unit needs it no more."""

from datetime import UTC, datetime

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.kube.paths import GPU_STORAGES, GPU_UNITS
from gpu_platform.pulumi_protocol.resource import Resource, ResourceFailedError
from gpu_platform.pulumi_protocol.serving import EngineLog
from providers.cluster.kinds import KINDS
from providers.cluster.lifecycle import Lifecycle, Session
from providers.cluster.resources import GPU_STORAGE
from tests.support.scripted_kube import StoredObjects
from tests.support.virtual_time import run_in_virtual_time

PATH = GPU_STORAGES.item("data", "runtime-instance")
RESOURCE = Resource(f"urn:pulumi:test::shop::{GPU_STORAGE}::storage", GPU_STORAGE)


def make_storage(version: str, **annotations: str) -> Json:
    metadata = {"namespace": "runtime-instance", "name": "data", "uid": "uid-data", "annotations": annotations}
    kind = {"apiVersion": names.API_VERSION, "kind": "GPUStorage"}
    return {**kind, "metadata": {**metadata, "resourceVersion": version}, "spec": {"size": "1Gi"}}


def make_unit(*mounts: str, **metadata: str) -> Json:
    spec = {"storageMounts": [{"name": name, "mountPath": "/data"} for name in mounts]}
    return {"metadata": {"namespace": "runtime-instance", "name": "user", "uid": "uid-user", **metadata}, "spec": spec}


HELD = {names.ANNOTATION_MOUNTED_BY: "unit/user"}
UNIT = GPU_UNITS.item("user", "runtime-instance")
PATIENT_LOOKS = 120
"""Of the storage: more than `UNMOUNTED_SECONDS` at one a second."""


def build_lifecycle(server: StoredObjects) -> Lifecycle:
    return Lifecycle(server, KINDS[GPU_STORAGE], Session(EngineLog("")), lambda: datetime.now(UTC))


def delete(server: StoredObjects) -> None:
    run_in_virtual_time(build_lifecycle(server).delete(RESOURCE, "runtime-instance/data", {"uid": "uid-data"}))


@pytest.mark.parametrize(
    "unit",
    [None, make_unit("data", deletionTimestamp="2026-11-18T00:00:00Z"), make_unit("other")],
    ids=["gone", "being deleted", "unmounted"],
)
def test_a_storage_is_deleted_once_a_unit_that_needs_it_no_more_has_released_it(unit: Json | None) -> None:
    server = StoredObjects()
    server.store.objects[PATH] = make_storage("1", **HELD)
    if unit is not None:
        server.store.objects[UNIT] = unit
    looks = 0

    def release(method: str, path: str) -> None:
        nonlocal looks
        looks += (method, path) == ("get", PATH)
        if looks == PATIENT_LOOKS:
            server.store.objects[PATH] = make_storage("2")

    server.fault = release
    delete(server)
    assert PATH not in server.store.objects
    assert looks > PATIENT_LOOKS


def test_a_storage_that_a_live_unit_mounts_is_not_deleted() -> None:
    server = StoredObjects()
    server.store.objects[PATH] = make_storage("1", **HELD)
    server.store.objects[UNIT] = make_unit("data")
    with pytest.raises(ResourceFailedError, match="GPUStorage runtime-instance/data is in use: unit/user uses it"):
        delete(server)
    assert PATH in server.store.objects


def test_a_storage_that_is_taken_once_more_at_the_last_moment_is_waited_for_again() -> None:
    server = StoredObjects()
    server.store.objects[PATH] = make_storage("1")
    looks = 0

    def take(method: str, path: str) -> None:
        nonlocal looks
        looks += (method, path) == ("get", PATH)
        if looks == 2:
            server.store.objects[PATH] = make_storage("2", **HELD)
        if looks == 5:
            server.store.objects[PATH] = make_storage("3")

    server.fault = take
    delete(server)
    assert PATH not in server.store.objects
