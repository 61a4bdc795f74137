"""Requests and answers about invocations and dead letters."""

import secrets
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from gpu_platform.domain.functions import FUNCTION_NAME, FunctionPhase
from gpu_platform.domain.invocations import (
    LONGEST_TIMEOUT,
    Attributes,
    ColdStart,
    ContentType,
    Headers,
    InvocationID,
    InvocationRequest,
    InvocationResult,
    InvocationState,
    Mode,
)
from gpu_platform.domain.value import Value, fields_of

REDRIVE_LIMIT = 1_000
FunctionName = Annotated[str, Field(pattern=f"^{FUNCTION_NAME.pattern}$")]


def new_invocation_id() -> str:
    return f"inv-{secrets.token_hex(16)}"


class Invoke(Value):
    """A call of a function."""

    serverless_request_id: Annotated[FunctionName, Field(alias="serverlessRequestID", description="The function.")]
    invocation_id: Annotated[
        InvocationID | None,
        Field(
            alias="invocationID",
            description="Chosen by the caller, new for each new call: sent again, the call is answered, not repeated.",
        ),
    ] = None
    mode: Annotated[Mode, Field(description="sync: answer when it is over, or with 202 when that takes too long.")] = (
        Mode.ASYNC
    )
    payload: Annotated[Any, Field(description="What the function gets: any JSON.")] = None
    content_type: ContentType = "application/json"
    headers: Headers = Field(default={})
    attributes: Attributes = Field(default={})
    timeout_seconds: Annotated[
        int,
        Field(
            ge=0,
            le=int(LONGEST_TIMEOUT.total_seconds()),
            description="When it is of no use any more, and how long sync waits; 0: the function's own, and 30 s.",
        ),
    ] = 0

    def to_request(self) -> InvocationRequest:
        named = {
            "function": self.serverless_request_id,
            "id": self.invocation_id or new_invocation_id(),
            "timeout_seconds": self.timeout_seconds or None,
        }
        return InvocationRequest(**(fields_of(self, InvocationRequest) | named))


class FunctionState(Value):
    """How a function is, in the words of its status."""

    phase: FunctionPhase
    reason: str | None = None
    message: str | None = None


class InvocationView(Value):
    """A call, and its result once it is over."""

    invocation_id: Annotated[str, Field(alias="invocationID")]
    serverless_request_id: Annotated[str, Field(alias="serverlessRequestID", description="The function.")]
    mode: Mode
    state: InvocationState
    attempts: Annotated[int, Field(description="How many of its attempts count.")]
    worker: Annotated[str | None, Field(description="Who ran it last.")] = None
    cancel_asked: Annotated[bool | None, Field(description="It runs, and is asked to end.")] = None
    retry_of: Annotated[str | None, Field(description="The call that this one is tried again for.")] = None
    accepted_at: datetime
    expires_at: Annotated[datetime, Field(description="When it ends, whatever it does.")]
    queued_at: datetime | None = None
    first_started_at: Annotated[datetime | None, Field(description="If it was begun more than once.")] = None
    started_at: datetime | None = None
    cold_start: Annotated[
        ColdStart | None, Field(description="How its worker came, if the call was there before it was.")
    ] = None
    finished_at: datetime | None = None
    function_state: Annotated[
        FunctionState | None,
        Field(description="Of a call that is not over, where one call is asked for: how its function is."),
    ] = None
    reason: Annotated[str | None, Field(description="Why it has no result.")] = None
    result: InvocationResult | None = None
    result_bytes: Annotated[
        int | None,
        Field(description="Of a body that is shown only where one call is asked for, if it is not too large."),
    ] = None


class Redrive(Value):
    """Which dead letters to try again: these, or those of a function, or all."""

    function: FunctionName | None = None
    ids: Annotated[tuple[InvocationID, ...] | None, Field(min_length=1, max_length=REDRIVE_LIMIT)] = None
    limit: Annotated[int, Field(ge=1, le=REDRIVE_LIMIT, description="Dead letters at most.")] = 100


class Redriven(Value):
    """What became of dead letters."""

    redriven: Annotated[int, Field(description="New calls.")]
    known: Annotated[int, Field(description="Dead letters that were tried again before.")]
    skipped: Annotated[int, Field(description="Dead letters whose function or payload is gone.")]
    ids: Annotated[tuple[str, ...], Field(description="Of the new calls.")]
    more: Annotated[bool, Field(description="There may be others: the limit was reached, or a queue is full.")]


class Purged(Value):
    """What became of a function's queue."""

    cancelled: Annotated[int, Field(description="Calls that waited.")]
