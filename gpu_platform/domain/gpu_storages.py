"""GPUStorage: a volume that outlives the units which mount it, filled once where that is asked for."""

import hashlib
import json
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from gpu_platform.domain.conditions import Condition
from gpu_platform.domain.gpu_units import Words
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.names import ANNOTATION_RECOVERY_NONCE
from gpu_platform.domain.specs import QuantityText
from gpu_platform.domain.value import Value

READY = "Ready"
PREPARED = "Prepared"
ACCESSOR_READY = "AccessorReady"

StorageSize = Annotated[QuantityText, Field(min_length=1, description="A quantity such as 100Gi. It may only grow.")]
StorageName = Annotated[str, Field(min_length=1, max_length=40, description="Name of a GPUStorage.")]
StorageClassName = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
        max_length=253,
        description="Kubernetes storage class; without one, the platform's, or else the cluster's default.",
    ),
]
RetainClaim = Annotated[bool, Field(description="True leaves the claim with its data when the storage is deleted.")]


class StoragePhase(StrEnum):
    PENDING = "Pending"
    READY = "Ready"
    FAILED = "Failed"
    TERMINATING = "Terminating"


class PreparePhase(StrEnum):
    NOT_REQUESTED = "NotRequested"
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class RecoveryPhase(StrEnum):
    """What becomes of a preparation that failed: nothing, until somebody asks for another."""

    NONE = "None"
    REQUIRED = "Required"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"


class AccessorPhase(StrEnum):
    DISABLED = "Disabled"
    PENDING = "Pending"
    READY = "Ready"
    FAILED = "Failed"


class StorageReason(StrEnum):
    """Why a condition is as it is."""

    READY = "StorageReady"
    PENDING = "StoragePending"
    PVC_SYNC_FAILED = "StoragePVCSyncFailed"
    CLAIM_LOST = "StorageClaimLost"
    INVALID_SPEC = "StorageInvalidSpec"
    IN_USE = "StorageInUse"
    TERMINATING = "StorageTerminating"
    PREPARE_NOT_REQUESTED = "StoragePrepareNotRequested"
    PREPARE_PENDING = "StoragePreparePending"
    PREPARE_RUNNING = "StoragePrepareRunning"
    PREPARE_READY = "StoragePrepareReady"
    PREPARE_FAILED = "StoragePrepareFailed"
    ACCESSOR_DISABLED = "StorageAccessorDisabled"
    ACCESSOR_PENDING = "StorageAccessorPending"
    ACCESSOR_READY = "StorageAccessorReady"
    ACCESSOR_FAILED = "StorageAccessorFailed"


class Prepare(Value):
    """How the storage is filled before anybody mounts it. Exactly one of `fromImage` and `fromStorageName`."""

    from_image: Annotated[
        str | None, Field(min_length=1, max_length=1_000, description="Run once, with the storage at /workspace.")
    ] = None
    from_storage_name: Annotated[
        StorageName | None, Field(description="Copied, as soon as it is Ready and no unit mounts it.")
    ] = None
    command: Annotated[Words, Field(description="Instead of the image's entrypoint; with `fromImage` only.")] = ()
    args: Annotated[Words, Field(description="Arguments of it; with `fromImage` only.")] = ()


class Accessor(Value):
    """A file browser that reads the storage and changes nothing."""

    enabled: Annotated[bool, Field(description="Whether there is one.")] = False


class GPUStorageSpec(Value):
    """What the storage is to be."""

    size: StorageSize
    storage_class_name: StorageClassName | None = None
    prepare: Prepare | None = None
    accessor: Accessor = Accessor()
    retain: RetainClaim = False


class PrepareStatus(Value):
    """How the preparation went."""

    phase: Annotated[PreparePhase, Field(description="How far it is.")] = PreparePhase.NOT_REQUESTED
    job_name: Annotated[str | None, Field(description="The Job that prepares, or did.")] = None
    observed_digest: Annotated[
        str | None, Field(description="Which preparation this is about: what was asked for, and how often anew.")
    ] = None
    recovery_phase: Annotated[
        RecoveryPhase, Field(description="Required after a failure: it is not repeated unless somebody asks for it.")
    ] = RecoveryPhase.NONE
    message: Annotated[str | None, Field(description="What it waits for, or what failed.")] = None
    begun: Annotated[
        bool, Field(description="Its Job may have run: when that is gone without an end, the preparation has failed.")
    ] = False


class AccessorStatus(Value):
    """How the file browser is."""

    phase: Annotated[AccessorPhase, Field(description="Whether it answers.")] = AccessorPhase.DISABLED
    service_name: Annotated[str | None, Field(description="The Service in front of it.")] = None
    access_url: Annotated[str | None, Field(alias="accessURL", description="Where it answers inside the cluster.")] = (
        None
    )


class GPUStorageStatus(Value):
    """What the storage is."""

    phase: Annotated[StoragePhase | None, Field(description="The state in one word; the condition Ready says why.")] = (
        None
    )
    claim_name: Annotated[str | None, Field(description="The PersistentVolumeClaim with the data.")] = None
    capacity: Annotated[str | None, Field(description="What the bound claim really has.")] = None
    prepare: PrepareStatus = PrepareStatus()
    accessor: AccessorStatus = AccessorStatus()
    mounted_by: Annotated[tuple[str, ...], Field(description="The unit that mounts it; none or one.")] = ()
    observed_generation: Annotated[int | None, Field(description="Generation of the spec that was looked at.")] = None
    last_sync_time: Annotated[datetime | None, Field(description="When this status was last written.")] = None
    conditions: Annotated[
        tuple[Condition, ...], Field(description="Ready, Prepared, AccessorReady; why or why not.")
    ] = ()


def is_mountable(storage: dict[str, Any]) -> bool:
    """Whether a unit that holds it may start with it: it is Ready, and nobody asked for another preparation since."""
    status = GPUStorageStatus.model_validate(storage.get("status") or {})
    prepare = (storage.get("spec") or {}).get("prepare")
    if status.phase is not StoragePhase.READY or prepare is None:
        return status.phase is StoragePhase.READY
    nonce = annotations_of(storage).get(ANNOTATION_RECOVERY_NONCE)
    return status.prepare.observed_digest == prepare_digest(Prepare.model_validate(prepare), nonce)


def prepare_digest(prepare: Prepare, nonce: str | None) -> str:
    """One preparation: the same wish with another nonce is another one."""
    text = json.dumps([prepare.to_json(), nonce], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
