"""The form of every answer of the REST API: `{"data": …}`, a page of a list, or `{"error": {…}}`."""

from typing import Annotated, Generic, TypeVar

from pydantic import Field

from gpu_platform.domain.value import Value

T = TypeVar("T")


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
