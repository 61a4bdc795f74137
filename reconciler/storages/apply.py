"""Carries out a storage's plan: its objects in order, then the status, last and only if it changed."""

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from gpu_platform.domain import names
from gpu_platform.domain.conditions import find_condition, reason_of
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import key_of, labels_of
from gpu_platform.domain.mount_holds import Holder, HolderKind
from gpu_platform.domain.storages import ACCESSOR_READY, PREPARED, READY, GPUStorageStatus, StorageReason
from gpu_platform.kube import AlreadyExistsError, KubeError
from gpu_platform.kube.paths import PERSISTENT_VOLUME_CLAIMS
from gpu_platform.kube.requests import ObjectClient, find
from gpu_platform.process import pass_point
from gpu_platform.store.storages import try_hold
from reconciler.child_diff import StorageChild
from reconciler.expectations import OwnWrites, Place, place_of
from reconciler.guarded_writes import (
    MOVED,
    TRANSIENT,
    CreateObject,
    DeleteObject,
    ObjectWrite,
    PatchObject,
    Recorder,
    apply_write,
    write_status,
)
from reconciler.storages.observe import Observed
from reconciler.storages.plan import Plan, TakeSource, Write
from reconciler.storages.status import with_refusal

STORAGE = "GPUStorage"
TOLD: dict[str, Literal["Normal", "Warning"]] = {
    StorageReason.READY: "Normal",
    StorageReason.PREPARE_READY: "Normal",
    StorageReason.ACCESSOR_READY: "Normal",
    StorageReason.IN_USE: "Warning",
    StorageReason.CLAIM_LOST: "Warning",
    StorageReason.PVC_SYNC_FAILED: "Warning",
    StorageReason.INVALID_SPEC: "Warning",
    StorageReason.PREPARE_FAILED: "Warning",
    StorageReason.ACCESSOR_FAILED: "Warning",
}
"""The reasons that are worth an Event; what only passes by is not."""


class RefusedError(Exception):
    """The API server refused an object; the status says so, and the loop tries again later."""


def places_of(observed: Observed) -> Iterator[tuple[Place, Json | None]]:
    """Every object that a storage's plan may write, as it was seen."""
    yield place_of(STORAGE, observed.storage), observed.storage
    namespace, name = key_of(observed.storage)
    yield (StorageChild.CLAIM, namespace, name), observed.claim
    yield (StorageChild.NETWORK_POLICY, namespace, names.storage_policy_name(name)), observed.network_policy
    yield (StorageChild.SERVICE, namespace, names.accessor_name(name)), observed.service
    yield (StorageChild.DEPLOYMENT, namespace, names.accessor_name(name)), observed.deployment
    yield from ((place_of(StorageChild.JOB, job), job) for job in observed.jobs)
    yield from ((place_of(StorageChild.POD, pod), pod) for pod in observed.pods)


async def apply_plan(
    plan: Plan, observed: Observed, client: ObjectClient, events: Recorder, own_writes: OwnWrites, now: datetime
) -> None:
    failure: KubeError | None = None
    status = plan.status
    is_unguarded = False
    for write in plan.writes:
        # No pod may run without the policy, or with an old one. What is to go may go.
        if is_unguarded and not isinstance(write, DeleteObject):
            continue
        try:
            await _apply_write(write, observed, client, own_writes, now)
        except KubeError as error:
            kind = _kind_of(write)
            # What concerns the file browser must not hold up the data: not even that another has its name.
            is_accessor = kind in (StorageChild.SERVICE, StorageChild.DEPLOYMENT)
            if kind is None or status is None or (isinstance(error, TRANSIENT) and not is_accessor):
                raise
            failure = failure or error
            is_unguarded = is_unguarded or kind is StorageChild.NETWORK_POLICY
            if not isinstance(error, MOVED):
                status = with_refusal(status, kind, error.message)
    if status is not None:
        await _apply_status(observed.storage, status, client, events, own_writes)
    if failure is not None:
        raise failure if isinstance(failure, TRANSIENT) else RefusedError(str(failure)) from failure


async def _apply_status(
    storage: Json, status: GPUStorageStatus, client: ObjectClient, events: Recorder, own_writes: OwnWrites
) -> None:
    old = GPUStorageStatus.of(storage)
    if not await write_status(client, own_writes, STORAGE, storage, old, status):
        return
    pass_point(f"storages.status-{status.prepare.phase.lower()}")
    for type_ in (READY, PREPARED, ACCESSOR_READY):
        condition = find_condition(status.conditions, type_)
        if condition is not None and reason_of(old.conditions, type_) != condition.reason and condition.reason in TOLD:
            await events.record(storage, TOLD[condition.reason], condition.reason, condition.message)


async def _apply_write(
    write: Write, observed: Observed, client: ObjectClient, own_writes: OwnWrites, now: datetime
) -> None:
    if isinstance(write, TakeSource):
        holder = Holder(HolderKind.STORAGE, observed.storage["metadata"]["name"])
        await try_hold(client, write.source, holder, now)
        pass_point("storages.took-source")
        return
    if write.kind == STORAGE:
        pass_point("storages.before-finalizers")
    own_writes.remember(*await _send(write, client))
    match write:
        case CreateObject(kind):
            pass_point(f"storages.made-{kind.lower()}")
        case DeleteObject(kind):
            pass_point(f"storages.deleted-{kind.lower()}")
        case PatchObject(StorageChild.CLAIM):
            pass_point("storages.patched-claim")
        case PatchObject(StorageChild.JOB):
            pass_point("storages.resumed-job")


async def _send(write: ObjectWrite, client: ObjectClient) -> tuple[Place, Json | None]:
    try:
        return await apply_write(write, client)
    except AlreadyExistsError as error:
        if not isinstance(write, CreateObject) or write.kind != StorageChild.CLAIM:
            raise
        metadata = write.body["metadata"]
        live = await find(client, PERSISTENT_VOLUME_CLAIMS, metadata["name"], metadata["namespace"])
        if live is None or labels_of(live).get(names.LABEL_STORAGE) == metadata["name"]:
            raise
        message = f"there is a claim {metadata['name']!r} that is not the platform's; give the storage another name"
        raise KubeError(422, "Invalid", message) from error


def _kind_of(write: Write) -> StorageChild | None:
    """The child that a refused write is about; None for one after which nothing else is done."""
    if isinstance(write, TakeSource | DeleteObject) or write.kind == STORAGE:
        return None
    return StorageChild(write.kind)
