"""What a tenant asks of a storage: the accepted request, how it becomes a GPUStorage, how a change is merged into
one, and when its preparation may be repeated.

Recovery goes by the recorded request alone, so whatever the API promises is decided here.
"""

from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.gpu_storages import (
    Accessor,
    GPUStorageSpec,
    GPUStorageStatus,
    Prepare,
    PreparePhase,
    RetainClaim,
    StorageSize,
    prepare_digest,
)
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.mount_holds import hold_of
from gpu_platform.domain.quantities import QuantityError, canonical_quantity, parse_amount
from gpu_platform.domain.units import RequestError, accepted_text
from gpu_platform.domain.value import Value

Json = dict[str, Any]

NAME_RULE = f"should be 1 to {names.UNIT_NAME_LIMIT} lower-case letters, digits and inner hyphens"


class StorageRequest(GPUStorageSpec):
    """A create request after all checks that need no look-up: what is hashed and recorded."""

    name: str

    def to_spec(self) -> GPUStorageSpec:
        return GPUStorageSpec.model_validate(self.model_dump(exclude={"name"}))


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
        raise RequestError("name", NAME_RULE)
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
            raise RequestError("prepare.fromStorageName", NAME_RULE)


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
    status = GPUStorageStatus.model_validate(storage.get("status") or {})
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
    spec = request.to_spec()
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUStorage",
        "metadata": {
            "name": request.name,
            "namespace": namespace,
            "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY_VALUE},
            "annotations": {
                names.ANNOTATION_OPERATION_ID: operation_id,
                names.ANNOTATION_REQUEST_HASH: request_hash,
                names.ANNOTATION_ACCEPTED_SPEC: accepted_text(spec),
            },
            # From the start, so that no moment is left in which it can be deleted under a unit.
            "finalizers": [names.STORAGE_FINALIZER],
        },
        "spec": spec.to_json(),
    }
