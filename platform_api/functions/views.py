"""What callers say about functions, and what they are shown."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from gpu_platform.domain import names
from gpu_platform.domain.conditions import find_condition
from gpu_platform.domain.functions import FunctionRequest
from gpu_platform.domain.gpu_functions import (
    FUNCTION_NAME,
    FUNCTION_NAME_LIMIT,
    FunctionPhase,
    GPUFunctionSpec,
    GPUFunctionStatus,
)
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.stacks import stack_name_of
from gpu_platform.domain.value import Value
from platform_api.fields import OperationID, StackName, StackRecorded

Json = dict[str, Any]


class CreateFunction(GPUFunctionSpec):
    """A function to declare: how calls are answered, and by how many workers."""

    operation_id: OperationID
    name: Annotated[
        str,
        # The pattern only describes: `normalise_function` refuses in better words.
        Field(
            max_length=FUNCTION_NAME_LIMIT,
            description="Unique among the tenant's functions; calls name it as serverlessRequestID.",
            json_schema_extra={"pattern": f"^{FUNCTION_NAME.pattern}$"},
        ),
    ]

    def to_request(self) -> FunctionRequest:
        return FunctionRequest.model_validate(self.model_dump(exclude={"operation_id"}))


class FunctionView(GPUFunctionSpec):
    """A function, as its tenant sees it."""

    name: str
    namespace: str
    operation_id: Annotated[str | None, Field(alias="operationID")] = None
    phase: FunctionPhase
    workers: Annotated[int, Field(description="Workers that there are, ready or not.")]
    ready_workers: Annotated[int, Field(description="Workers that take calls.")]
    generation: int
    observed_generation: int | None = None
    last_sync_time: datetime | None = None
    created_at: datetime
    stack: StackName = None
    stack_recorded: StackRecorded = None
    reason: str | None = None
    message: str | None = None


class HealthState(StrEnum):
    """In one word."""

    READY = "ready"
    COLD = "cold"
    STARTING = "starting"
    FAILING = "failing"
    QUEUE_UNAVAILABLE = "queue_unavailable"


class FunctionHealth(Value):
    """Whether calls of a function are answered just now."""

    state: Annotated[
        HealthState, Field(description="cold: nothing runs and nothing has to; the first call waits for a worker.")
    ]
    reason: Annotated[str | None, Field(description="Why, in one word for programs.")] = None
    message: Annotated[str | None, Field(description="Why, in words for people.")] = None
    workers: Annotated[int, Field(description="Workers that there are, ready or not.")]
    ready_workers: Annotated[int, Field(description="Workers that take calls.")]
    waiting: Annotated[
        int | None, Field(description="Calls that wait for a worker; absent while the queue cannot be asked.")
    ] = None
    running: Annotated[
        int | None, Field(description="Calls that a worker has; absent while the queue cannot be asked.")
    ] = None


def view_of(function: Json) -> FunctionView:
    metadata = function["metadata"]
    spec = GPUFunctionSpec.model_validate(function["spec"])
    status = GPUFunctionStatus.model_validate(function.get("status") or {})
    ready = find_condition(status.conditions, "Ready")
    is_leaving = "deletionTimestamp" in metadata
    return FunctionView(
        **{field: getattr(spec, field) for field in GPUFunctionSpec.model_fields},
        name=metadata["name"],
        namespace=metadata["namespace"],
        operation_id=annotations_of(function).get(names.ANNOTATION_OPERATION_ID),
        phase=FunctionPhase.TERMINATING if is_leaving else status.phase or FunctionPhase.PROGRESSING,
        workers=status.workers,
        ready_workers=status.ready_workers,
        generation=metadata["generation"],
        observed_generation=status.observed_generation,
        last_sync_time=status.last_sync_time,
        created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
        stack=stack_name_of(function),
        reason=ready.reason if ready else None,
        message=ready.message if ready else None,
    )
