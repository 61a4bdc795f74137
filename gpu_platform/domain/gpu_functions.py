"""GPUFunction: code that answers calls, and the workers that run it."""

import re
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from gpu_platform.domain.conditions import Condition
from gpu_platform.domain.gpu_specs import SpecName
from gpu_platform.domain.gpu_units import Framework, Template
from gpu_platform.domain.value import Value

FUNCTION_NAME_LIMIT = 30
"""So that nothing derived from it, such as the name of a worker, is ever cut."""

FUNCTION_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?")
WORKERS_LIMIT = 100


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
    image: Annotated[str, Field(min_length=1, max_length=1_000, description="The image that a worker runs.")]
    template: Template = Template()
    framework: Framework = Framework()
    concurrency: Annotated[int, Field(ge=1, le=256, description="Calls that one worker runs at once.")] = 1
    min_workers: Annotated[int, Field(ge=0, le=WORKERS_LIMIT, description="Workers that are always there.")] = 0
    max_workers: Annotated[int, Field(ge=1, le=WORKERS_LIMIT, description="Workers at most.")] = 1
    idle_timeout_seconds: Annotated[
        int, Field(ge=1, le=86_400, description="How long a worker beyond the fewest may have nothing to do.")
    ] = 300
    timeout_seconds: Annotated[
        int | None, Field(ge=1, le=259_200, description="Deadline of a call that says none; without one, 72 hours.")
    ] = None
    max_attempts: Annotated[int, Field(ge=1, le=20, description="Tries of a call whose worker dies.")] = 3
    ack_wait_seconds: Annotated[
        int, Field(ge=3, le=3_600, description="Silence of a worker after which its call is given to another.")
    ] = 30
    queue_limit: Annotated[int, Field(ge=1, le=1_000_000, description="Calls that may wait or run.")] = 10_000


class GPUFunctionStatus(Value):
    """How its workers are."""

    phase: Annotated[
        FunctionPhase | None, Field(description="The state in one word; the condition Ready says why.")
    ] = None
    workers: Annotated[int, Field(description="Workers that there are, ready or not.")] = 0
    ready_workers: Annotated[int, Field(description="Workers that take calls.")] = 0
    observed_generation: Annotated[int | None, Field(description="Generation of the spec that was looked at.")] = None
    last_sync_time: Annotated[datetime | None, Field(description="When this status was last written.")] = None
    conditions: Annotated[tuple[Condition, ...], Field(description="Ready, and why or why not.")] = ()
