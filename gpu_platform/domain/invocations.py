"""Invocations: one call of a function, from its acceptance to its one end.

The record is the truth: it is written before the call is queued, and its end is written before the message is
acknowledged. Whoever writes an end first wins, and no end is ever changed.
"""

import hashlib
import json
import re
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, Field, ValidationInfo

from gpu_platform.domain.functions import FUNCTION_NAME
from gpu_platform.domain.operations import json_hash
from gpu_platform.domain.value import Value, fields_of

INVOCATION_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
"""One token of a NATS subject: without dots, spaces, `*` and `>`, nobody's id can mean something else there."""

HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
RESERVED_HEADERS = re.compile(r"nats-", re.IGNORECASE)
HEADER_LIMIT, ATTRIBUTE_LIMIT, ATTRIBUTE_NAME_LIMIT = 4_096, 2_048, 128
"""Characters."""

ENVELOPE_LIMIT = 32 << 10
"""Bytes of JSON of a call's headers and attributes together: they are a part of its record."""

CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

LONGEST_TIMEOUT = timedelta(hours=72)
"""Also of a call for which nobody named one: nothing waits for ever."""

INLINE_BODY = 64 << 10
"""Bytes of JSON up to which a payload or an answer is a part of its record."""

LARGEST_BODY = 16 << 20
"""Bytes of JSON of a payload or an answer, where nothing else is set."""


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
        _check_text(name, value, HEADER_LIMIT)
    _check_size(headers)
    return headers


def _check_attributes(attributes: dict[str, str], info: ValidationInfo) -> dict[str, str]:
    """After the headers, with which they share their room."""
    for name, value in attributes.items():
        if not name or len(name) > ATTRIBUTE_NAME_LIMIT or CONTROL_CHARACTERS.search(name):
            raise ValueError(f"{name[:ATTRIBUTE_NAME_LIMIT]!r} is not the name of an attribute")
        _check_text(name, value, ATTRIBUTE_LIMIT)
    _check_size(info.data.get("headers", {}), attributes)
    return attributes


def _check_size(*parts: dict[str, str]) -> None:
    if sum(len(json.dumps(part, ensure_ascii=False).encode()) for part in parts) > ENVELOPE_LIMIT:
        raise ValueError(f"headers and attributes together have more than {ENVELOPE_LIMIT} bytes; use the payload")


def _check_text(name: str, value: str, limit: int) -> None:
    if CONTROL_CHARACTERS.search(value):
        raise ValueError(f"the value of {name!r} has a control character in it")
    if len(value) > limit:
        raise ValueError(f"the value of {name!r} has more than {limit} characters")


Headers = Annotated[dict[str, str], Field(max_length=64), AfterValidator(_check_headers)]
Attributes = Annotated[dict[str, str], Field(max_length=64), AfterValidator(_check_attributes)]
InvocationID = Annotated[str, Field(pattern=f"^{INVOCATION_ID.pattern}$")]
ContentType = Annotated[str, Field(pattern=r"^[!-~]([ -~]{0,126}[!-~])?$")]
TimeoutSeconds = Annotated[int, Field(ge=1, le=int(LONGEST_TIMEOUT.total_seconds()))]


class InvocationRequest(Value):
    """What a caller asks for. Two requests with one hash are one request."""

    function: Annotated[str, Field(pattern=f"^{FUNCTION_NAME.pattern}$")]
    id: InvocationID
    mode: Mode = Mode.ASYNC
    content_type: ContentType = "application/json"
    headers: Headers = Field(default={})
    attributes: Attributes = Field(default={})
    payload: Any = None
    timeout_seconds: TimeoutSeconds | None = None

    @property
    def hash(self) -> str:
        """Without the mode: a caller may ask again in the other one."""
        return self.hash_with(self.payload)

    def hash_with(self, payload: Any) -> str:
        """The hash of this request with another payload, of parsed JSON."""
        fields = self.model_copy(update={"mode": Mode.ASYNC, "payload": None}).to_json()
        return json_hash(fields if payload is None else {**fields, "payload": payload})


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


class BodyReference(Value):
    """A body that is too large for the record. It is kept in chunks, which have its digest in their names: two who
    store different bodies for one call do not meet."""

    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=0)]
    """In bytes."""

    chunks: Annotated[int, Field(ge=1)]


class ColdStart(Value):
    """How the worker came that a call had to wait for. An answer comes whole: its first byte is the end of the call."""

    woken_at: AwareDatetime | None = None
    """When it was decided that another worker is needed."""

    claimed_at: AwareDatetime | None = None
    """When it had its place: the stock was claimed."""

    started_at: AwareDatetime
    """Of its sidecar: the pod has a node, and its images are there."""

    ready_at: AwareDatetime
    """When it took its first call."""


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
    payload_body: BodyReference | None = None
    """In place of a large payload."""

    retry_of: str | None = None
    accepted_at: AwareDatetime
    expires_at: AwareDatetime
    """When it is of no use to anybody any more."""

    queued_at: AwareDatetime | None = None
    """Of the message by which it was first taken from the queue."""

    is_cancel_asked: bool = False
    attempts: int = 0
    """Those that count: see `charged_attempts`."""

    is_alone: bool = False
    """While it runs: no other call runs in its worker. While it waits: it is a suspect, and will run alone."""

    worker: str | None = None
    first_started_at: AwareDatetime | None = None
    """Of the first attempt, where there was more than one."""

    started_at: AwareDatetime | None = None
    """Of the last attempt."""

    cold_start: ColdStart | None = None
    """Of the worker of the first attempt, if the call was there before it."""

    finished_at: AwareDatetime | None = None
    reason: str | None = None
    result: InvocationResult | None = None
    result_body: BodyReference | None = None
    """In place of a large body of the result."""

    @property
    def is_over(self) -> bool:
        return self.state in ENDS


def accept(
    tenant: str,
    request: InvocationRequest,
    now: datetime,
    *,
    default_timeout_seconds: int | None = None,
    payload_body: BodyReference | None = None,
    request_hash: str | None = None,
) -> Invocation:
    """The function's own timeout is the default. With a reference, the payload itself is not kept here. The hash is
    given where it was made from a payload that the request does not hold."""
    seconds = request.timeout_seconds or default_timeout_seconds
    timeout = min(timedelta(seconds=seconds), LONGEST_TIMEOUT) if seconds else LONGEST_TIMEOUT
    return Invocation(
        **(fields_of(request, Invocation) | ({"payload": None} if payload_body else {})),
        tenant=tenant,
        request_hash=request_hash or request.hash,
        payload_body=payload_body,
        accepted_at=now,
        expires_at=now + timeout,
    )


def retry_id(tenant: str, invocation_id: str) -> str:
    """One per call: however often its retry is asked for, it is one."""
    digest = hashlib.sha256(f"{tenant}\0{invocation_id}".encode()).hexdigest()
    return f"retry-{digest[:32]}"


def retry(call: Invocation, now: datetime) -> Invocation:
    """The same call once more, as another one: the end of the first stays as it is."""
    if not call.is_over:
        raise ValueError(f"the invocation {call.id} is not over: it is {call.state}")
    timeout = min(call.expires_at - call.accepted_at, LONGEST_TIMEOUT)
    return Invocation(
        **(fields_of(call, InvocationRequest) | {"id": retry_id(call.tenant, call.id), "mode": Mode.ASYNC}),
        tenant=call.tenant,
        request_hash=call.request_hash,
        payload_body=call.payload_body,
        retry_of=call.id,
        accepted_at=now,
        expires_at=now + timeout,
    )


def charged_attempts(call: Invocation) -> int:
    """Attempts that count against the limit. One that was cut off beside others does not: any of them may have ended
    the process, and the suspects run again, each of them alone."""
    is_cut_off_beside_others = call.state is InvocationState.RUNNING and not call.is_alone
    return max(call.attempts - 1, 0) if is_cut_off_beside_others else call.attempts


def begin(
    call: Invocation,
    worker: str,
    now: datetime,
    queued_at: datetime | None = None,
    start: ColdStart | None = None,
    *,
    is_alone: bool = False,
) -> Invocation:
    """One more attempt, by a worker that came in this way. `is_alone`: the worker runs nothing else until it ends."""
    is_first = not call.attempts and call.started_at is None
    is_cold = start is not None and is_first and call.accepted_at < start.ready_at
    return _changed(
        call,
        state=InvocationState.RUNNING,
        worker=worker,
        attempts=charged_attempts(call) + 1,
        is_alone=is_alone,
        queued_at=call.queued_at or queued_at,
        first_started_at=call.first_started_at or call.started_at,
        started_at=now,
        cold_start=start if is_cold else call.cold_start,
    )


def put_back(call: Invocation, *, is_charged: bool, is_alone: bool) -> Invocation:
    """It waits again, after an attempt without an answer. `is_alone`: its next attempt runs alone."""
    attempts = call.attempts if is_charged else max(call.attempts - 1, 0)
    return _changed(call, state=InvocationState.QUEUED, attempts=attempts, is_alone=is_alone)


def answer(
    call: Invocation, result: InvocationResult, now: datetime, result_body: BodyReference | None = None
) -> Invocation:
    """With a reference, the body itself is not kept here."""
    state = InvocationState.SUCCEEDED if result.is_success else InvocationState.FAILED
    kept = result.model_copy(update={"body": None}) if result_body else result
    return _changed(call, state=state, result=kept, result_body=result_body, finished_at=now)


def expire(call: Invocation, now: datetime) -> Invocation:
    return _changed(call, state=InvocationState.EXPIRED, finished_at=now, reason="DeadlinePassed")


def cancel(call: Invocation, now: datetime) -> Invocation:
    """At once while it waits; one that runs is asked to end, by the one who runs it."""
    if call.state is InvocationState.RUNNING and not call.is_cancel_asked:
        return _changed(call, is_cancel_asked=True)
    return call_off(call, "Cancelled", now)


def call_off(call: Invocation, reason: str, now: datetime) -> Invocation:
    """At once, whether or not it runs: nobody is there to be asked."""
    return _changed(call, state=InvocationState.CANCELLED, finished_at=now, reason=reason)


def bury(call: Invocation, reason: str, now: datetime) -> Invocation:
    """As a dead letter, which a person may look at and send again."""
    return _changed(call, state=InvocationState.DEAD_LETTERED, finished_at=now, reason=reason)


def phases_of_cold_start(call: Invocation) -> dict[str, float]:
    """Seconds from the acceptance to each step; empty for a call whose worker was there. What was before the call,
    another one had asked for."""
    start = call.cold_start
    if start is None:
        return {}
    instants = {
        "queued": call.queued_at,
        "woken": start.woken_at,
        "claimed": start.claimed_at,
        "started": start.started_at,
        "ready": start.ready_at,
        "answered": call.finished_at,
    }
    seconds = {name: (at - call.accepted_at).total_seconds() for name, at in instants.items() if at is not None}
    return {name: each for name, each in seconds.items() if each >= 0}


def without_contents(call: Invocation) -> Invocation:
    """For lists. What it was called with and what it answered may be large."""
    bare = call.result.model_copy(update={"body": None, "headers": {}}) if call.result else None
    return call.model_copy(update={"payload": None, "headers": {}, "attributes": {}, "result": bare})


def _changed(call: Invocation, **changes: Any) -> Invocation:
    if call.is_over:
        raise ValueError(f"the invocation {call.id} is over: it {call.state}")
    return call.model_copy(update=changes)
