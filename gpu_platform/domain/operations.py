"""Operation: the record of one accepted request. It makes a retry harmless and a crash repairable."""

import hashlib
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

from pydantic import Field

from gpu_platform.domain import names
from gpu_platform.domain.conditions import ObjectStatus
from gpu_platform.domain.json_text import encode_canonical
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.value import Value


class OperationKind(StrEnum):
    CREATE_UNIT = "CreateUnit"
    START_UNIT = "StartUnit"
    DELETE_UNIT = "DeleteUnit"
    DELETE_STOCK_POOL = "DeleteStockPool"
    SEED_STOCK_UNITS = "SeedStockUnits"
    CREATE_STOCK_POOL = "CreateStockPool"
    CREATE_FUNCTION = "CreateFunction"
    DELETE_FUNCTION = "DeleteFunction"
    CREATE_STORAGE = "CreateStorage"
    RECOVER_STORAGE = "RecoverStorage"
    DELETE_STORAGE = "DeleteStorage"
    PREVIEW_UNIT = "PreviewUnit"


class OperationPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


FINAL_PHASES = (OperationPhase.SUCCEEDED, OperationPhase.FAILED)

OPERATORS = ""
"""The tenant under which operators' operations are recorded: they share one ledger."""


class OperationTarget(Value):
    """The object that the request is about."""

    kind: Annotated[str, Field(max_length=63, description="Its kind, such as GPUUnit.")]
    namespace: Annotated[str, Field(max_length=63, description="Where it lives; empty for one of the cluster.")]
    name: Annotated[str, Field(max_length=253, description="What it is called.")]
    uid: Annotated[str | None, Field(max_length=63, description="That very object, not a later one of its name.")] = (
        None
    )


class OperationSpec(Value):
    """What was accepted. A replay is compared with the hash; a recovery reads the request, until the operation ends."""

    operation_id: Annotated[
        str, Field(alias="operationID", min_length=1, max_length=200, description="Chosen by the caller.")
    ]
    kind: Annotated[OperationKind, Field(description="What was asked for.")]
    request_hash: Annotated[
        str, Field(pattern=r"^[0-9a-f]{64}$", max_length=64, description="SHA-256 of the normalised request.")
    ]
    request: Annotated[
        dict[str, Any], Field(description="The normalised request, where a recovery needs it; empty after the end.")
    ] = Field(default={})
    target: OperationTarget


class OperationStatus(ObjectStatus):
    """How far it came. Once Succeeded or Failed, it stays so."""

    phase: Annotated[OperationPhase | None, Field(description="Without one, it has not begun.")] = None
    reason: Annotated[str | None, Field(description="Why it failed, in one word for programs.")] = None
    message: Annotated[str | None, Field(description="Why it failed, in words for people.")] = None
    started_at: Annotated[datetime | None, Field(description="When the work on it began.")] = None
    finished_at: Annotated[datetime | None, Field(description="When it succeeded or failed.")] = None
    expires_at: Annotated[
        datetime | None, Field(description="When it may be forgotten; set once its object is gone.")
    ] = None
    target_uid: Annotated[str | None, Field(max_length=63, description="The very object that it made.")] = None
    result: Annotated[dict[str, Any] | None, Field(description="What it found out, where that is its purpose.")] = None


RETENTION = timedelta(days=7)
"""How long an operation is kept after its object is gone: a late retry must find it."""

PREVIEW_RETENTION = timedelta(hours=1)
"""How long a preview is kept after its end: what it says is about the cluster as it was then."""

PREVIEW_PATIENCE = timedelta(minutes=10)
"""How long a preview waits for a stack worker. Chosen by feel: far more than a queue of them takes."""

TAKEOVER = timedelta(seconds=15)
"""When somebody else finishes an operation that nobody finished."""

PARTS_AT_ONCE = 4_096
"""Of a JSON text that is hashed, each of them a value, a name or a bracket."""

ACCEPT_SECONDS = 8.0
"""How long its first owner works on it. Well before `TAKEOVER`, so that the two never meet."""


def operation_name(tenant: str, operation_id: str) -> str:
    """One name per caller and operationID: the API server itself refuses the second one."""
    return f"op-{_digest(tenant, operation_id)}"


def delete_operation_name(tenant: str, uid: str) -> str:
    """Deleting one object is one operation, however often it is asked for."""
    return f"delete-{_digest(tenant, uid)}"


def start_operation_name(tenant: str, uid: str, generation: int) -> str:
    """So is starting a unit that was stopped at this generation."""
    return f"start-{_digest(tenant, uid, str(generation))}"


def is_trimmable(spec: OperationSpec, status: OperationStatus) -> bool:
    """Returns whether the request is recorded though neither a replay nor a recovery will read it again.

    | phase             | kind                             | request  | trimmable |
    | ----------------- | -------------------------------- | -------- | --------- |
    | Succeeded, Failed | any but the two below            | recorded | yes       |
    | Succeeded, Failed | any                              | empty    | no        |
    | Succeeded, Failed | StartUnit, PreviewUnit: a number | recorded | no        |
    | any other         | any                              | any      | no        |
    """
    has_number = spec.kind in (OperationKind.START_UNIT, OperationKind.PREVIEW_UNIT)
    return status.phase in FINAL_PHASES and bool(spec.request) and not has_number


def is_made_by(item: dict[str, Any], spec: OperationSpec) -> bool:
    """Whether the unit carries the marks of this request: it made the unit, or somebody who went on for it did."""
    return marks_of(item) == (spec.operation_id, spec.request_hash)


def marks_of(item: dict[str, Any]) -> tuple[str | None, str | None]:
    """The request that an object says it comes of: its operationID and its hash."""
    annotations = annotations_of(item)
    return annotations.get(names.ANNOTATION_OPERATION_ID), annotations.get(names.ANNOTATION_REQUEST_HASH)


def request_hash(request: Value) -> str:
    """Of the parsed and normalised request: the order of keys and unsaid defaults make no difference."""
    return json_hash(request.to_json())


def json_hash(value: Any) -> str:
    """Of parsed JSON. A large value is hashed in parts."""
    digest = hashlib.sha256()
    parts = encode_canonical(value)
    while part := "".join(islice(parts, PARTS_AT_ONCE)):
        digest.update(part.encode())
    return digest.hexdigest()


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]
