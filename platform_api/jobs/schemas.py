"""What operators are shown of a job."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from gpu_platform.domain.operations import OperationKind, OperationPhase, OperationTarget
from gpu_platform.domain.stacks import address_of
from gpu_platform.domain.value import Value
from gpu_platform.store.ledger import spec_of, status_of

Json = dict[str, Any]


class JobType(StrEnum):
    SEED_STOCK_UNITS = "seed_stock_units"
    CREATE_STOCK_POOL = "create_stock_pool"


class JobStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


TYPES = {
    OperationKind.SEED_STOCK_UNITS: JobType.SEED_STOCK_UNITS,
    OperationKind.CREATE_STOCK_POOL: JobType.CREATE_STOCK_POOL,
}
"""The operations that are jobs."""

STATUSES = {
    None: JobStatus.PENDING,
    OperationPhase.PENDING: JobStatus.PENDING,
    OperationPhase.RUNNING: JobStatus.RUNNING,
    OperationPhase.SUCCEEDED: JobStatus.SUCCEEDED,
    OperationPhase.FAILED: JobStatus.FAILED,
}


class JobView(Value):
    """Work that was accepted. Success means that the objects are there, not that they are ready."""

    id: Annotated[str, Field(description="The operationID.")]
    operation_id: Annotated[str, Field(alias="operationID")]
    type: JobType
    status: JobStatus
    error: Annotated[str | None, Field(description="Why it failed.")] = None
    object_name: Annotated[str, Field(description="The pool that it makes.")]
    object_namespace: str
    stack: Annotated[str | None, Field(description="The Pulumi stack of that pool; none once it failed.")] = None
    created_at: datetime
    updated_at: datetime


def is_job(operation: Json) -> bool:
    return operation["spec"]["kind"] in TYPES


def view_of(operation: Json) -> JobView:
    spec, status = spec_of(operation), status_of(operation)
    created_at = datetime.fromisoformat(operation["metadata"]["creationTimestamp"])
    error = status.message or status.reason if status.phase is OperationPhase.FAILED else None
    return JobView(
        id=spec.operation_id,
        operation_id=spec.operation_id,
        type=TYPES[spec.kind],
        status=STATUSES[status.phase],
        error=error,
        object_name=spec.target.name,
        object_namespace=spec.target.namespace,
        stack=_stack_name(spec.target) if status.phase is not OperationPhase.FAILED else None,
        created_at=created_at,
        updated_at=status.finished_at or status.started_at or created_at,
    )


def _stack_name(target: OperationTarget) -> str | None:
    """From its name: the pool may not be there yet."""
    address = address_of({"kind": target.kind, "metadata": {"namespace": target.namespace, "name": target.name}})
    return address.full_name if address is not None else None
