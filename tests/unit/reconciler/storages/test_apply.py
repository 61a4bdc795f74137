"""A storage's plan, carried out on an API server that refuses something."""

from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.storages import GPUStorageStatus
from gpu_platform.kube import KubeError
from gpu_platform.kube.paths import DEPLOYMENTS, GPU_STORAGES, JOBS, NETWORK_POLICIES, SERVICES
from reconciler.child_diff import StorageChild
from reconciler.expectations import OwnWrites
from reconciler.guarded_writes import CreateObject
from reconciler.storages.apply import RefusedError, apply_plan
from reconciler.storages.observe import Observed
from reconciler.storages.plan import plan_storage
from reconciler.storages.resources import StorageSettings
from tests.support.builders import NOW, as_stored, make_storage
from tests.support.scripted_kube import StoredObjects
from tests.unit.reconciler.storages.observed import make_observed

NAMESPACE = "runtime-instance"
SETTINGS = StorageSettings(copy_image="cp:1", accessor_image="shows:1", accessor_command=("shows",), blocked_egress=())
FILLED: Json = {"fromImage": "example/fetch", "command": ["fetch"]}
ENABLED: Json = {"enabled": True}


class Silent:
    async def record(self, regarding: Json, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        pass


def now() -> datetime:
    return NOW


def observe(storage: Json, **changes: Any) -> Observed:
    claim = {
        "metadata": {"name": "weights", "namespace": NAMESPACE, "uid": "c", "resourceVersion": "1"},
        "spec": {"resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    }
    return make_observed(storage, claim=claim, **changes)


async def apply_without_policy(observed: Observed) -> tuple[list[tuple[str, str]], GPUStorageStatus]:
    """What was asked of an API server that refuses the NetworkPolicy, and the status afterwards."""
    server = StoredObjects()
    item = GPU_STORAGES.item("weights", NAMESPACE)
    server.store.objects[f"{item}/status"] = observed.storage

    def refuse(_method: str, path: str) -> None:
        if path.startswith(NETWORK_POLICIES.collection(NAMESPACE)):
            raise KubeError(403, "Forbidden", "policies are not for you")

    server.fault = refuse
    plan = plan_storage(observed, SETTINGS, NOW)
    with pytest.raises(RefusedError):
        await apply_plan(plan, observed, server, Silent(), OwnWrites(now), NOW)
    return server.requests, GPUStorageStatus.model_validate(server.store.objects[f"{item}/status"]["status"])


async def test_no_job_is_made_while_the_policy_is_refused() -> None:
    requests, status = await apply_without_policy(observe(make_storage(prepare=FILLED)))
    assert JOBS.collection(NAMESPACE) not in [path for _, path in requests]
    assert (status.prepare.phase, status.prepare.message) == ("Pending", "policies are not for you")


async def test_no_job_is_let_run_while_the_policy_is_refused() -> None:
    observed = observe(make_storage(prepare=FILLED))
    writes = plan_storage(observed, SETTINGS, NOW).writes
    [made] = [write.body for write in writes if isinstance(write, CreateObject) and write.kind is StorageChild.JOB]
    job = as_stored(made)
    begun = plan_storage(replace(observed, jobs=(job,)), SETTINGS, NOW).status
    assert begun is not None
    storage = {**observed.storage, "status": begun.to_json()}
    requests, _ = await apply_without_policy(replace(observed, storage=storage, jobs=(job,)))
    assert [
        path for method, path in requests if method == "patch" and path.startswith(JOBS.collection(NAMESPACE))
    ] == []


async def test_no_file_browser_is_made_while_the_policy_is_refused_and_the_storage_stays_ready() -> None:
    requests, status = await apply_without_policy(observe(make_storage(accessor=ENABLED)))
    asked = [path for _, path in requests]
    assert SERVICES.collection(NAMESPACE) not in asked
    assert DEPLOYMENTS.collection(NAMESPACE) not in asked
    assert (status.phase, status.accessor.phase, status.prepare.phase) == ("Ready", "Failed", "NotRequested")
    assert [each.message for each in status.conditions if each.type == "AccessorReady"] == ["policies are not for you"]


async def test_what_is_to_go_goes_while_the_policy_is_refused() -> None:
    item = {"metadata": {"name": "prep-weights-old", "namespace": NAMESPACE, "uid": "j", "resourceVersion": "1"}}
    requests, _ = await apply_without_policy(observe(make_storage(prepare=FILLED), jobs=(item,)))
    assert ("delete", JOBS.item("prep-weights-old", NAMESPACE)) in requests
