"""GPUFunction: code that answers calls, and the workers that run it."""

import re
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from gpu_platform.domain.conditions import Condition
from gpu_platform.domain.gpu_units import Framework, Template
from gpu_platform.domain.specs import SpecName
from gpu_platform.domain.value import Value

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
