"""Invocations: one call of a function, from its acceptance to its one end.

The record is the truth: it is written before the call is queued, and its end is written before the message is
acknowledged. Whoever writes an end first wins, and no end is ever changed.
"""

import re
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from gpu_platform.domain.gpu_functions import FUNCTION_NAME
from gpu_platform.domain.operations import request_hash
from gpu_platform.domain.value import Value

Json = dict[str, Any]

INVOCATION_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
"""One token of a NATS subject: without dots, spaces, `*` and `>`, nobody's id can mean something else there."""

HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
RESERVED_HEADERS = re.compile(r"nats-", re.IGNORECASE)
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

LONGEST_TIMEOUT = timedelta(hours=24)


class InvocationState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """The function answered, and what it answered is a failure."""

    EXPIRED = "expired"
    CANCELLED = "cancelled"
    DEAD_LETTERED = "dead_lettered"
    """The function gave no answer, however often it was asked."""


ENDS = frozenset(InvocationState) - {InvocationState.QUEUED, InvocationState.RUNNING}


class Mode(StrEnum):
    ASYNC = "async"
    SYNC = "sync"


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a header")
        if RESERVED_HEADERS.match(name):
            raise ValueError(f"{name!r} is reserved: names that begin with Nats- are the queue's own")
        if CONTROL_CHARACTERS.search(value):
            raise ValueError(f"the value of {name!r} has a control character in it")
    return headers


Headers = Annotated[dict[str, str], Field(max_length=64), AfterValidator(_check_headers)]


class InvocationRequest(Value):
    """What a caller asks for. Two requests with one hash are one request."""

    function: Annotated[str, Field(pattern=f"^{FUNCTION_NAME.pattern}$")]
    id: Annotated[str, Field(pattern=f"^{INVOCATION_ID.pattern}$")]
    mode: Mode = Mode.ASYNC
    content_type: Annotated[str, Field(min_length=1, max_length=128)] = "application/json"
    headers: Headers = Field(default={})
    attributes: Annotated[dict[str, str], Field(max_length=64)] = Field(default={})
    payload: Any = None
    timeout_seconds: Annotated[int | None, Field(ge=1, le=int(LONGEST_TIMEOUT.total_seconds()))] = None

    @property
    def hash(self) -> str:
        """Without the mode: whoever asks again may have learnt to wait, or not to."""
        return request_hash(self.model_copy(update={"mode": Mode.ASYNC}))


class InvocationResult(Value):
    """What the function answered, or why it did not."""

    status_code: Annotated[int, Field(ge=100, le=599)] = 200
    content_type: str = "application/json"
    headers: dict[str, str] = Field(default={})
    body: Any = None
    error: str | None = None

    @property
    def is_success(self) -> bool:
        return self.error is None and self.status_code < 400


class Invocation(Value):
    """The record of one call."""

    version: Literal["v1"] = "v1"
    tenant: str
    function: str
    id: str
    request_hash: str
    mode: Mode
    state: InvocationState = InvocationState.QUEUED
    content_type: str
    headers: dict[str, str] = Field(default={})
    attributes: dict[str, str] = Field(default={})
    payload: Any = None
    accepted_at: datetime
    expires_at: datetime | None = None
    """When it is of no use to anybody any more."""

    is_cancel_asked: bool = False
    attempts: int = 0
    worker: str | None = None
    started_at: datetime | None = None
    """Of the last attempt."""

    finished_at: datetime | None = None
    reason: str | None = None
    result: InvocationResult | None = None

    @property
    def is_over(self) -> bool:
        return self.state in ENDS


def accept(tenant: str, request: InvocationRequest, now: datetime) -> Invocation:
    timeout = timedelta(seconds=request.timeout_seconds) if request.timeout_seconds else None
    return Invocation(
        tenant=tenant,
        function=request.function,
        id=request.id,
        request_hash=request.hash,
        mode=request.mode,
        content_type=request.content_type,
        headers=request.headers,
        attributes=request.attributes,
        payload=request.payload,
        accepted_at=now,
        expires_at=now + timeout if timeout else None,
    )


def begin(call: Invocation, worker: str, attempt: int, now: datetime) -> Invocation:
    return _changed(call, state=InvocationState.RUNNING, worker=worker, attempts=attempt, started_at=now)


def answer(call: Invocation, result: InvocationResult, now: datetime) -> Invocation:
    state = InvocationState.SUCCEEDED if result.is_success else InvocationState.FAILED
    return _changed(call, state=state, result=result, finished_at=now)


def expire(call: Invocation, now: datetime) -> Invocation:
    return _changed(call, state=InvocationState.EXPIRED, finished_at=now, reason="DeadlinePassed")


def cancel(call: Invocation, now: datetime) -> Invocation:
    """At once while it waits; one that runs is asked to end, by the one who runs it."""
    if call.state is InvocationState.RUNNING and not call.is_cancel_asked:
        return _changed(call, is_cancel_asked=True)
    return _changed(call, state=InvocationState.CANCELLED, finished_at=now, reason="Cancelled")


def bury(call: Invocation, reason: str, now: datetime) -> Invocation:
    """As a dead letter, which a person may look at and send again."""
    return _changed(call, state=InvocationState.DEAD_LETTERED, finished_at=now, reason=reason)


def _changed(call: Invocation, **changes: Any) -> Invocation:
    if call.is_over:
        raise ValueError(f"the invocation {call.id} is over: it {call.state}")
    return call.model_copy(update=changes)
