"""JSON bodies: strict decoding of requests, the form of refusals, and ETags.

What the caller sent is what the schema says, or the answer names the field and the fix. An ETag changes with an
object's spec, not with its status.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import Response
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gpu_platform.api_models.envelope import ErrorBody, ErrorDetail, ErrorEnvelope
from gpu_platform.domain.json_text import Json, JsonBoundsError, check_bounds, parse_json
from gpu_platform.domain.value import Value, sentence_of
from platform_api.http.errors import ApiError, invalid, invalid_field

JSON = "application/json"
M = TypeVar("M", bound=Value)
REF_TEMPLATE = "#/components/schemas/{model}"

DETAILS_LIMIT = 20
"""Wrong fields that one answer names."""

FIELD_VALUES = 20_000
"""Values of JSON in the fields of one request: in 128 KiB there is no room for so many environment variables."""


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


def etag_of(item: Json) -> str:
    return f'"{item["metadata"]["uid"]}.{item["metadata"].get("generation", 1)}"'


def is_matched(if_match: str | None, item: Json) -> bool:
    """Whether the object is still what the caller's `If-Match` says; without one, it is."""
    if if_match is None or if_match.strip() == "*":
        return True
    return etag_of(item) in [each.strip() for each in if_match.split(",")]


def decoded(model: type[M], *, unsaid: M | None = None) -> Callable[[Request], Awaitable[M]]:
    """A dependency: the request's body as this model; `unsaid` is what no body at all means."""

    async def decode(request: Request) -> M:
        if unsaid is not None and not await request.body():
            return unsaid
        return decode_body(model, await read_json_body(request))

    return decode


async def read_json_body(request: Request) -> bytes:
    """The request keeps no copy of it."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise invalid_field("Content-Type", f"should be {JSON}")
    return b"".join([part async for part in request.stream()])


def decode_body(model: type[M], body: bytes) -> M:
    """Counts what would be built before it is built."""
    try:
        check_bounds(body, FIELD_VALUES)
        parse_json(body)
    except JsonBoundsError as error:
        raise invalid_field("", f"the body {error}") from None
    except ValueError as error:
        raise invalid_field("", f"the body is not JSON: {error}") from None
    try:
        return model.model_validate_json(body, strict=True, extra="forbid", by_alias=True, by_name=False)
    except ValidationError as error:
        raise refusal(error.errors(include_url=False, include_context=False)) from None


def refusal(errors: Sequence[ErrorDetails], skip: int = 0) -> ApiError:
    """One detail per wrong field; `skip` leaves out the first parts of its place ("query", "path")."""
    details = [ErrorDetail(field=_place(error["loc"][skip:]), message=sentence_of(error)) for error in errors]
    return invalid(*details[:DETAILS_LIMIT])


def _place(parts: Sequence[int | str]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")
