"""GPUFunction: code that answers calls, and the workers that run it. The model of the object, what a tenant asks of it
(the accepted request), how that becomes a GPUFunction, how a change is merged into one, and the function that is made
after a unit.

Recovery goes by the recorded request alone, so all that the API promises is decided here.
"""

import re
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from gpu_platform.domain.conditions import Condition, ObjectStatus
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import build_object
from gpu_platform.domain.specs import SpecName
from gpu_platform.domain.units import (
    Framework,
    GPUUnitSpec,
    Template,
    accepted_annotations,
    check_framework,
    check_template,
)
from gpu_platform.domain.value import RequestError, Value, fields_of

FUNCTION_NAME_LIMIT = 30
"""So that nothing derived from it, such as the name of a worker, is ever cut."""

FUNCTION_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?")
WORKERS_LIMIT = 100
LONGEST_CALL_SECONDS = 259_200
FunctionImage = Annotated[str, Field(min_length=1, max_length=1_000, description="The image that a worker runs.")]
Concurrency = Annotated[int, Field(ge=1, le=256, description="Calls that one worker runs at once.")]
MinWorkers = Annotated[int, Field(ge=0, le=WORKERS_LIMIT, description="Workers that are always there.")]
MaxWorkers = Annotated[int, Field(ge=1, le=WORKERS_LIMIT, description="Workers at most.")]

IdleTimeout = Annotated[
    int, Field(ge=1, le=86_400, description="How long a worker beyond the fewest may have nothing to do.")
]

CallTimeout = Annotated[
    int, Field(ge=1, le=LONGEST_CALL_SECONDS, description="Deadline of a call that says none; without one, 72 hours.")
]

MaxAttempts = Annotated[int, Field(ge=1, le=20, description="Tries of a call whose worker dies.")]

AckWait = Annotated[
    int, Field(ge=3, le=3_600, description="Silence of a worker after which its call is given to another.")
]

QueueLimit = Annotated[int, Field(ge=1, le=1_000_000, description="Calls that may wait or run.")]
NAME_RULE = f"should be 1 to {FUNCTION_NAME_LIMIT} lower-case letters, digits and inner hyphens"


class FunctionPhase(StrEnum):
    PROGRESSING = "Progressing"
    READY = "Ready"
    FAILED = "Failed"
    TERMINATING = "Terminating"


class FunctionReason(StrEnum):
    """Why the Ready condition is as it is."""

    FUNCTION_READY = "FunctionReady"
    WORKERS_STARTING = "WorkersStarting"
    NO_STOCK = "NoStock"
    WORKER_FAILED = "WorkerFailed"
    QUEUE_UNAVAILABLE = "QueueUnavailable"
    INVALID_SPEC = "InvalidSpec"


class GPUFunctionSpec(Value):
    """How calls are answered, and by how many workers."""

    spec_name: SpecName
    image: FunctionImage
    template: Template = Template()
    framework: Framework = Framework()
    concurrency: Concurrency = 1
    min_workers: MinWorkers = 0
    max_workers: MaxWorkers = 1
    idle_timeout_seconds: IdleTimeout = 300
    timeout_seconds: CallTimeout | None = None
    max_attempts: MaxAttempts = 3
    ack_wait_seconds: AckWait = 30
    queue_limit: QueueLimit = 10_000


class GPUFunctionStatus(ObjectStatus):
    """How its workers are."""

    phase: Annotated[
        FunctionPhase | None, Field(description="The state in one word; the condition Ready says why.")
    ] = None
    workers: Annotated[int, Field(description="Workers that there are, ready or not.")] = 0
    ready_workers: Annotated[int, Field(description="Workers that take calls.")] = 0
    observed_generation: Annotated[int | None, Field(description="Generation of the spec that was looked at.")] = None
    last_sync_time: Annotated[datetime | None, Field(description="When this status was last written.")] = None
    conditions: Annotated[tuple[Condition, ...], Field(description="Ready, and why or why not.")] = ()


class FunctionRequest(GPUFunctionSpec):
    """A create request after all checks that need no look-up: what is hashed and recorded."""

    name: str


class FunctionChange(Value):
    """A change of a function. What is not said stays; what is said takes the place of what was, as a whole."""

    image: FunctionImage | None = None
    template: Template | None = None
    framework: Framework | None = None
    concurrency: Concurrency | None = None
    min_workers: MinWorkers | None = None
    max_workers: MaxWorkers | None = None
    idle_timeout_seconds: IdleTimeout | None = None
    timeout_seconds: CallTimeout | None = None
    max_attempts: MaxAttempts | None = None
    ack_wait_seconds: AckWait | None = None
    queue_limit: QueueLimit | None = None


def is_function_name(text: str) -> bool:
    return FUNCTION_NAME.fullmatch(text) is not None


def normalise_function(request: FunctionRequest) -> FunctionRequest:
    """The request as it is; RequestError for what the schema alone cannot see."""
    if not is_function_name(request.name):
        raise RequestError("name", NAME_RULE)
    check_function(request)
    return request


def check_function(spec: GPUFunctionSpec) -> None:
    check_template(spec.template)
    check_framework(spec.framework, "framework")
    if spec.min_workers > spec.max_workers:
        raise RequestError(
            "minWorkers", f"should be no more than maxWorkers: {spec.min_workers} is more than {spec.max_workers}"
        )


def merge_function_change(spec: GPUFunctionSpec, change: FunctionChange) -> GPUFunctionSpec:
    """The spec after the change; RequestError for one that cannot be."""
    merged = spec.model_copy(update={field: value for field, value in change if value is not None})
    check_function(merged)
    return merged


def build_function(request: FunctionRequest, namespace: str, operation_id: str, request_hash: str) -> Json:
    spec = GPUFunctionSpec(**fields_of(request, GPUFunctionSpec))
    annotations = accepted_annotations(spec, operation_id, request_hash)
    return build_object("GPUFunction", request.name, namespace, spec, annotations=annotations)


def function_of_unit(unit: Json) -> Json | None:
    """The function that is made after a unit which takes calls of one that does not exist. Nobody accepted it, so no
    stack keeps it. None for a unit that takes no calls, or that has no image to make workers of."""
    spec = GPUUnitSpec.model_validate(unit["spec"])
    if spec.serverless is None or spec.image is None:
        return None
    wish = spec.serverless
    function = GPUFunctionSpec(
        spec_name=spec.spec_name,
        image=spec.image,
        template=spec.template,
        framework=wish.framework,
        min_workers=wish.min_available_count,
        max_workers=max(1, wish.min_available_count),
        idle_timeout_seconds=wish.idle_timeout_seconds,
    )
    return build_object("GPUFunction", wish.request_id, unit["metadata"]["namespace"], function)
