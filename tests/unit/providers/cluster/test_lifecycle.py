"""Deleting a storage whose unit has just gone: it is deleted as soon as the reconciler has given it back."""

from datetime import UTC, datetime
from typing import Any

from gpu_platform.adapters.kube.paths import GPU_STORAGES
from gpu_platform.domain import names
from providers.cluster.kinds import KINDS
from providers.cluster.lifecycle import Lifecycle
from providers.cluster.package import GPU_STORAGE
from providers.cluster.sessions import Session
from providers.protocol.engine_log import EngineLog
from providers.protocol.resource import Resource
from tests.support.scripted_kube import StoredObjects
from tests.support.virtual_time import run_in_virtual_time

Json = dict[str, Any]

PATH = GPU_STORAGES.item("data", "runtime-instance")
RESOURCE = Resource(f"urn:pulumi:test::shop::{GPU_STORAGE}::storage", GPU_STORAGE)


def make_storage(version: str, **annotations: str) -> Json:
    metadata = {"namespace": "runtime-instance", "name": "data", "uid": "uid-data", "annotations": annotations}
    kind = {"apiVersion": names.API_VERSION, "kind": "GPUStorage"}
    return {**kind, "metadata": {**metadata, "resourceVersion": version}, "spec": {"size": "1Gi"}}


def test_a_storage_that_is_given_back_meanwhile_is_deleted() -> None:
    server = StoredObjects()
    server.store.objects[PATH] = make_storage("1", **{names.ANNOTATION_MOUNTED_BY: "unit/user"})
    looks = 0

    def give_back(method: str, path: str) -> None:
        nonlocal looks
        looks += (method, path) == ("get", PATH)
        if looks == 3:
            server.store.objects[PATH] = make_storage("2")

    server.fault = give_back
    lifecycle = Lifecycle(server, KINDS[GPU_STORAGE], Session(EngineLog("")), lambda: datetime.now(UTC))
    run_in_virtual_time(lifecycle.delete(RESOURCE, "runtime-instance/data", {"uid": "uid-data"}))
    assert PATH not in server.store.objects
