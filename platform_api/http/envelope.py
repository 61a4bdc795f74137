"""The form of every answer: `{"data": …}` or `{"error": {…}}`."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Generic, TypeVar

from fastapi.responses import Response
from pydantic import Field

from gpu_platform.domain.value import Value
from platform_api.http.holding import hold

T = TypeVar("T")

JSON = "application/json"


class ErrorDetail(Value):
    """One field of the request, and what is wrong with it."""

    field: str
    message: str


class ErrorBody(Value):
    """Why the answer is no: a word for programs, a sentence for people."""

    code: str
    message: str
    details: tuple[ErrorDetail, ...] | None = None
    request_id: Annotated[str, Field(alias="requestID")]


class ErrorEnvelope(Value):
    error: ErrorBody


class Envelope(Value, Generic[T]):
    data: T


class Page(Value, Generic[T]):
    """A part of a list; `continue` asks for the next one."""

    data: tuple[T, ...]
    continue_: Annotated[str | None, Field(alias="continue")] = None


def answer(
    data: Value | Sequence[Value],
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    *,
    beside: Mapping[str, Any] | None = None,
) -> Response:
    """`beside` are fields next to the data. A list is held: one of 500 units may have many MiB."""
    shown = data.to_json() if isinstance(data, Value) else [each.to_json() for each in data]
    response = json_response({"data": shown, **(beside or {})}, status, headers)
    if not isinstance(data, Value):
        hold(len(response.body))
    return response


def error_response(
    status: int,
    code: str,
    message: str,
    request_id: str,
    details: Sequence[ErrorDetail] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    return json_response(error_body(code, message, request_id, details), status, headers)


def error_body(code: str, message: str, request_id: str, details: Sequence[ErrorDetail] = ()) -> dict[str, Any]:
    body = ErrorBody(code=code, message=message, details=tuple(details) or None, request_id=request_id)
    return ErrorEnvelope(error=body).to_json()


def json_response(body: Mapping[str, Any], status: int, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode_json(body), status, headers=dict(headers or {}), media_type=JSON)


def encode_json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
