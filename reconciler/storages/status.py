"""What a storage's status says. Pure."""

from dataclasses import dataclass
from datetime import datetime

from gpu_platform.domain import names
from gpu_platform.domain.conditions import find_condition, set_condition
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import labels_of
from gpu_platform.domain.mount_holds import Holder, HolderKind, mounting_unit_of
from gpu_platform.domain.storages import (
    ACCESSOR_READY,
    PREPARED,
    READY,
    AccessorPhase,
    AccessorStatus,
    GPUStorageStatus,
    PreparePhase,
    PrepareStatus,
    StoragePhase,
    StorageReason,
)
from reconciler.child_diff import StorageChild
from reconciler.storages.observe import Observed
from reconciler.storages.resources import accessor_url
from reconciler.units.pod_status import describe_wait, find_failure, find_unschedulable

PREPARED_REASONS = {
    PreparePhase.NOT_REQUESTED: StorageReason.PREPARE_NOT_REQUESTED,
    PreparePhase.PENDING: StorageReason.PREPARE_PENDING,
    PreparePhase.RUNNING: StorageReason.PREPARE_RUNNING,
    PreparePhase.SUCCEEDED: StorageReason.PREPARE_READY,
    PreparePhase.FAILED: StorageReason.PREPARE_FAILED,
}
ACCESSOR_REASONS = {
    AccessorPhase.DISABLED: StorageReason.ACCESSOR_DISABLED,
    AccessorPhase.PENDING: StorageReason.ACCESSOR_PENDING,
    AccessorPhase.READY: StorageReason.ACCESSOR_READY,
    AccessorPhase.FAILED: StorageReason.ACCESSOR_FAILED,
}


@dataclass(frozen=True)
class Verdict:
    phase: StoragePhase
    reason: StorageReason
    message: str


def judge(observed: Observed, prepare: PrepareStatus) -> Verdict:
    """The Ready condition of a storage; rows from top to bottom. The file browser is no part of it.

    | claim                                   | preparation      | verdict                              |
    | --------------------------------------- | ---------------- | ------------------------------------ |
    | lost, or deleted behind the platform    | any              | Failed · StorageClaimLost            |
    | not bound, and not because it binds late | any             | Pending · StoragePending             |
    | any other                               | failed           | Failed · StoragePrepareFailed        |
    | any other                               | waits or runs    | Pending · StoragePreparePending, …   |
    | any other                               | ended, or none   | Ready · StorageReady                 |
    """
    if is_lost(observed):
        message = "its claim was deleted, and the data with it; delete the storage and make another"
        return Verdict(StoragePhase.FAILED, StorageReason.CLAIM_LOST, message)
    if not has_volume(observed):
        return Verdict(StoragePhase.PENDING, StorageReason.PENDING, f"its claim waits for a volume{_why(observed)}")
    match prepare.phase:
        case PreparePhase.FAILED:
            message = f"its preparation failed, and is repeated when somebody asks for it: {prepare.message}"
            return Verdict(StoragePhase.FAILED, StorageReason.PREPARE_FAILED, message)
        case PreparePhase.RUNNING:
            return Verdict(StoragePhase.PENDING, StorageReason.PREPARE_RUNNING, prepare.message or "is being prepared")
        case PreparePhase.PENDING:
            return Verdict(StoragePhase.PENDING, StorageReason.PREPARE_PENDING, prepare.message or "is to be prepared")
    is_late = not is_bound(observed.claim)
    message = "gets its volume when the first unit mounts it" if is_late else "can be mounted"
    return Verdict(StoragePhase.READY, StorageReason.READY, message)


def _why(observed: Observed) -> str:
    if observed.claim is None or observed.has_class:
        return ""
    class_name = observed.claim["spec"].get("storageClassName")
    return f": there is no storage class {class_name!r}" if class_name else ": no storage class is the default one"


def is_bound(claim: Json | None) -> bool:
    return claim is not None and (claim.get("status") or {}).get("phase") == "Bound"


def has_volume(observed: Observed) -> bool:
    return is_bound(observed.claim) or (observed.claim is not None and observed.binds_late)


def is_lost(observed: Observed) -> bool:
    if observed.claim is None:
        return GPUStorageStatus.of(observed.storage).capacity is not None
    is_leaving = "deletionTimestamp" in observed.claim["metadata"]
    return is_leaving or (observed.claim.get("status") or {}).get("phase") == "Lost"


def find_copier(observed: Observed) -> Holder | None:
    """The storage that is being filled from this one."""
    holder = observed.hold.holder if observed.hold is not None else None
    return holder if holder is not None and holder.kind is HolderKind.STORAGE else None


def judge_accessor(observed: Observed, *, enabled: bool) -> tuple[AccessorStatus, str]:
    """How the file browser is, and why."""
    if not enabled:
        return AccessorStatus(), "is switched off"
    namespace, name = observed.storage["metadata"]["namespace"], observed.storage["metadata"]["name"]
    service = names.accessor_name(name)
    if (copier := find_copier(observed)) is not None:
        why = f"is away while {copier} is filled from this storage"
        return AccessorStatus(phase=AccessorPhase.PENDING, service_name=service), why
    pods = [pod for pod in observed.pods if names.LABEL_STORAGE_ACCESSOR in labels_of(pod)]
    if observed.deployment is not None and (observed.deployment.get("status") or {}).get("availableReplicas"):
        url = accessor_url(namespace, name)
        return AccessorStatus(phase=AccessorPhase.READY, service_name=service, access_url=url), "answers"
    if failure := find_failure(pods):
        return AccessorStatus(phase=AccessorPhase.FAILED, service_name=service), failure
    if is_bound(observed.claim):
        why = find_unschedulable(pods) or describe_wait(pods, observed.away, observed.deployment)
    else:
        why = "waits for the volume" + (", which comes with the first unit" if observed.binds_late else "")
    return AccessorStatus(phase=AccessorPhase.PENDING, service_name=service), why


def build_status(
    observed: Observed,
    verdict: Verdict,
    prepare: PrepareStatus,
    accessor: tuple[AccessorStatus, str],
    now: datetime,
) -> GPUStorageStatus:
    old = GPUStorageStatus.of(observed.storage)
    shown, why = accessor
    conditions = old.conditions
    generation = observed.storage["metadata"].get("generation")
    is_prepared = prepare.phase in (PreparePhase.NOT_REQUESTED, PreparePhase.SUCCEEDED)
    for type_, is_met, reason, message in (
        (READY, verdict.phase is StoragePhase.READY, verdict.reason, verdict.message),
        (PREPARED, is_prepared, PREPARED_REASONS[prepare.phase], prepare.message or ""),
        (ACCESSOR_READY, shown.phase is AccessorPhase.READY, ACCESSOR_REASONS[shown.phase], why),
    ):
        conditions = set_condition(
            conditions, type_, is_met=is_met, reason=reason, message=message, generation=generation, now=now
        )
    unit = mounting_unit_of(observed.storage)
    claim = observed.claim
    return GPUStorageStatus(
        phase=verdict.phase,
        claim_name=claim["metadata"]["name"] if claim is not None else old.claim_name,
        capacity=_capacity(claim) if claim is not None else old.capacity,
        prepare=prepare,
        accessor=shown,
        mounted_by=(unit,) if unit is not None else (),
        observed_generation=generation,
        last_sync_time=now,
        conditions=conditions,
    )


def with_refusal(status: GPUStorageStatus, kind: StorageChild, message: str) -> GPUStorageStatus:
    """The status after the API server refused one of the storage's objects. What exists goes on working: a claim that
    cannot grow, a file browser that cannot be made."""
    match kind:
        case StorageChild.SERVICE | StorageChild.DEPLOYMENT:
            return _with_failed_accessor(status, message)
        case StorageChild.NETWORK_POLICY if status.prepare.phase not in (PreparePhase.PENDING, PreparePhase.RUNNING):
            # How the preparation ended stays true: it is the file browser that does not come.
            is_wanted = status.accessor.phase is not AccessorPhase.DISABLED
            return _with_failed_accessor(status, message) if is_wanted else status
        case StorageChild.CLAIM if status.phase is StoragePhase.READY:
            return _reworded(status, READY, StorageReason.PVC_SYNC_FAILED, message, is_met=True)
        case StorageChild.CLAIM:
            changed = _reworded(status, READY, StorageReason.PVC_SYNC_FAILED, message)
            return changed.model_copy(update={"phase": StoragePhase.FAILED})
        case StorageChild.JOB | StorageChild.NETWORK_POLICY | StorageChild.POD:
            prepare = status.prepare.model_copy(update={"message": message})
            changed = _reworded(status, PREPARED, StorageReason.PREPARE_PENDING, message)
            return changed.model_copy(update={"prepare": prepare})


def _with_failed_accessor(status: GPUStorageStatus, message: str) -> GPUStorageStatus:
    accessor = AccessorStatus(phase=AccessorPhase.FAILED, service_name=status.accessor.service_name)
    changed = _reworded(status, ACCESSOR_READY, StorageReason.ACCESSOR_FAILED, message)
    return changed.model_copy(update={"accessor": accessor})


def _capacity(claim: Json) -> str | None:
    return ((claim.get("status") or {}).get("capacity") or {}).get("storage")


def _reworded(
    status: GPUStorageStatus, type_: str, reason: StorageReason, message: str, *, is_met: bool = False
) -> GPUStorageStatus:
    old = find_condition(status.conditions, type_)
    if old is None:
        return status
    conditions = set_condition(
        status.conditions,
        type_,
        is_met=is_met,
        reason=reason,
        message=message,
        generation=old.observed_generation,
        now=status.last_sync_time or old.last_transition_time,
    )
    return status.model_copy(update={"conditions": conditions})
