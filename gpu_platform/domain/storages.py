"""GPUStorage: a volume that outlives the units which mount it. The model of the object, what a tenant asks of it (the
accepted request), how that becomes a GPUStorage, how a change is merged into one, and when its preparation may be
repeated.

Recovery goes by the recorded request alone, so all that the API promises is decided here.
"""

import hashlib
import json
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from gpu_platform.domain import names
from gpu_platform.domain.conditions import Condition, ObjectStatus
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of, build_object
from gpu_platform.domain.mount_holds import hold_of
from gpu_platform.domain.names import ANNOTATION_RECOVERY_NONCE
from gpu_platform.domain.quantities import QuantityError, canonical_quantity, parse_amount
from gpu_platform.domain.specs import QuantityText
from gpu_platform.domain.units import Words, accepted_annotations
from gpu_platform.domain.value import RequestError, Value, fields_of

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


class GPUStorageStatus(ObjectStatus):
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
    status = GPUStorageStatus.of(storage)
    prepare = (storage.get("spec") or {}).get("prepare")
    if status.phase is not StoragePhase.READY or prepare is None:
        return status.phase is StoragePhase.READY
    nonce = annotations_of(storage).get(ANNOTATION_RECOVERY_NONCE)
    return status.prepare.observed_digest == prepare_digest(Prepare.model_validate(prepare), nonce)


def prepare_digest(prepare: Prepare, nonce: str | None) -> str:
    """One preparation: the same wish with another nonce is another one."""
    text = json.dumps([prepare.to_json(), nonce], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


class StorageRequest(GPUStorageSpec):
    """A create request after all checks that need no look-up: what is hashed and recorded."""

    name: str


class StorageChange(Value):
    """A change of a storage. What is not said stays. The class and the preparation cannot be changed."""

    size: StorageSize | None = None
    accessor: Accessor | None = None
    retain: RetainClaim | None = None


class RecoveryRefusedError(Exception):
    """The preparation cannot be repeated now; the message says what stands against it."""


def normalise_storage(request: StorageRequest) -> StorageRequest:
    """The request with its size as the cluster writes it; RequestError for what the schema alone cannot see."""
    if not names.is_unit_name(request.name):
        raise RequestError("name", names.UNIT_NAME_RULE)
    if request.prepare is not None:
        check_prepare(request.prepare)
        if request.prepare.from_storage_name == request.name:
            raise RequestError("prepare.fromStorageName", "a storage cannot be a copy of itself")
    return request.model_copy(update={"size": normalise_size(request.size)})


def check_prepare(prepare: Prepare) -> None:
    if (prepare.from_image is None) == (prepare.from_storage_name is None):
        raise RequestError("prepare", "should have exactly one of `fromImage` and `fromStorageName`")
    runs_something = bool(prepare.command or prepare.args)
    if prepare.from_image is not None and not runs_something:
        raise RequestError("prepare.command", "should say what `fromImage` is to run, in `command` or `args`")
    if prepare.from_storage_name is not None:
        if runs_something:
            raise RequestError("prepare.command", "`command` and `args` go with `fromImage`; a copy runs nothing else")
        if not names.is_unit_name(prepare.from_storage_name):
            raise RequestError("prepare.fromStorageName", names.UNIT_NAME_RULE)


def normalise_size(text: str) -> str:
    try:
        parse_amount(text)
    except QuantityError as error:
        raise RequestError("size", str(error)) from error
    return canonical_quantity(text)


def merge_storage_change(spec: GPUStorageSpec, change: StorageChange) -> GPUStorageSpec:
    """The spec after the change; RequestError for one that cannot be.

    | field    | rule                                                     |
    | -------- | -------------------------------------------------------- |
    | size     | replaced when given; smaller than before is refused      |
    | accessor | replaced when given                                      |
    | retain   | replaced when given                                      |
    """
    said = {field: value for field, value in change if value is not None}
    if change.size is not None:
        said["size"] = _grown(spec.size, change.size)
    return spec.model_copy(update=said)


def _grown(before: str, after: str) -> str:
    wanted = normalise_size(after)
    if parse_amount(wanted) < parse_amount(before):
        raise RequestError("size", f"a storage cannot shrink: it has {before}; ask for that or more")
    return before if parse_amount(wanted) == parse_amount(before) else wanted


def check_recovery(storage: Json) -> None:
    """Whether the preparation may be repeated now.

    | found                         | answer                                                   |
    | ----------------------------- | -------------------------------------------------------- |
    | nothing is prepared           | RequestError: there is nothing to repeat                 |
    | being deleted                 | refused                                                  |
    | waiting or running            | refused: it is on its way                                |
    | asked for anew, not begun yet | refused: it is on its way                                |
    | succeeded                     | refused: units may have written there since              |
    | mounted, or being copied      | refused: it would write under its user's hands           |
    | failed, and free              | allowed; the nonce is written as the storage was seen    |
    """
    prepare = GPUStorageSpec.model_validate(storage["spec"]).prepare
    if prepare is None:
        raise RequestError("prepare", "was not asked for when the storage was made: there is nothing to repeat")
    if "deletionTimestamp" in storage["metadata"]:
        raise RecoveryRefusedError("the storage is being deleted")
    status = GPUStorageStatus.of(storage)
    nonce = annotations_of(storage).get(names.ANNOTATION_RECOVERY_NONCE)
    is_current = status.prepare.observed_digest == prepare_digest(prepare, nonce)
    if status.prepare.phase not in (PreparePhase.FAILED, PreparePhase.SUCCEEDED) or not is_current:
        raise RecoveryRefusedError("its preparation has not ended yet; wait until it has succeeded or failed")
    if status.prepare.phase is PreparePhase.SUCCEEDED:
        raise RecoveryRefusedError("its preparation has succeeded, and must not overwrite what came after it")
    hold = hold_of(storage)
    if hold is not None:
        raise RecoveryRefusedError(f"{hold.holder} uses it, and would see its files change; unmount it first")


def build_recovery(storage: Json, nonce: str) -> Json:
    """The patch that asks for another preparation, for the storage as `check_recovery` saw it."""
    metadata = storage["metadata"]
    return {
        "metadata": {
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "annotations": {names.ANNOTATION_RECOVERY_NONCE: nonce},
        }
    }


def build_storage(request: StorageRequest, namespace: str, operation_id: str, request_hash: str) -> Json:
    spec = GPUStorageSpec(**fields_of(request, GPUStorageSpec))
    annotations = accepted_annotations(spec, operation_id, request_hash)
    storage = build_object("GPUStorage", request.name, namespace, spec, annotations=annotations)
    # From the start, so that no moment is left in which it can be deleted under a unit.
    storage["metadata"]["finalizers"] = [names.STORAGE_FINALIZER]
    return storage
