"""Requests and answers about functions, with the health of one."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from gpu_platform.api_models.fields import OperationID, StackName, StackRecorded
from gpu_platform.domain.functions import (
    FUNCTION_NAME,
    FUNCTION_NAME_LIMIT,
    FunctionPhase,
    FunctionRequest,
    GPUFunctionSpec,
)
from gpu_platform.domain.value import Value


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
