"""A request to the API as a value (`Call`), and how it is carried out as steps: pages, retries, refusals. Pure: the
sync and the async client perform the same steps, and differ in nothing but the I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar, cast
from urllib.parse import quote

import httpx
from pydantic import ValidationError

from gpu_platform.client.errors import (
    ApiError,
    UnexpectedAnswerError,
    UnsendableError,
    build_unexpected,
    build_unreachable,
    check_status,
    parse_retry_after,
)
from gpu_platform.domain.json_text import Json

SILENCE_SECONDS = 20.0
"""The API works on a request for 8 at the most; the rest is the way there and back."""

UNKNOWN_ROUTE = "not_found"
"""The code of a 404 about the address. Every other 404 is about the object."""

T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")

Method = Literal["GET", "POST", "PUT", "DELETE"]


@dataclass(frozen=True)
class Exchange:
    """A step: one HTTP request, performed once."""

    method: Method
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: Json | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    silence_seconds: float | None = SILENCE_SECONDS
    """The longest time without a byte of the answer. None: any time."""


@dataclass(frozen=True)
class Pause:
    """A step: time to wait."""

    seconds: float


Steps = Generator[Exchange | Pause, Any, R]
"""A client sends the response of each exchange into it, or throws the httpx error."""


@dataclass(frozen=True)
class Answer(Generic[T_co]):
    """A successful answer, as the server sent it and as a model."""

    document: Any
    """The JSON of `data`; None where the API answers without one, and for an object that was looked for in vain."""

    read: Callable[[Any], T_co] = field(repr=False)
    is_new: bool = False
    """Whether the request made something (201 or 202), and was not a replay (200)."""

    etag: str | None = None

    @cached_property
    def value(self) -> T_co:
        """The document as its model."""
        return read_model(self.read, self.document)


@dataclass(frozen=True)
class Retries:
    """When a request is sent again, with the same body and so with the same operationID.

    | answer               | sent again                                                              |
    | -------------------- | ----------------------------------------------------------------------- |
    | 429                  | yes: nothing was begun                                                  |
    | 503                  | if the request is repeatable                                            |
    | none                 | if the request is repeatable, and `after_no_answer`                     |
    | any other            | no                                                                      |

    The pause is Retry-After; without one `pause_seconds`, and never if that is None. A pause longer than
    `longest_seconds` is left to the caller, or shortened where `shortens`.
    """

    count: int = 3
    pause_seconds: float | None = None
    longest_seconds: float = 30.0
    """A person does not wait longer; the error says when to try again."""

    shortens: bool = False
    after_no_answer: bool = False

    def find_pause(self, response: httpx.Response, *, is_repeatable: bool) -> float | None:
        """Seconds until the request is sent again; None where that is no use or does harm."""
        if not was_not_begun(response) and not (is_repeatable and response.status_code == 503):
            return None
        after = parse_retry_after(response)
        pause = self.pause_seconds if after is None else float(after)
        if pause is None or (pause > self.longest_seconds and not self.shortens):
            return None
        return min(pause, self.longest_seconds)


class Operation(ABC, Generic[T_co]):
    """What a client can carry out."""

    @property
    def what(self) -> str:
        """What it is about, in messages."""
        return ""

    @abstractmethod
    def steps(self, conduct: Conduct) -> Steps[Answer[T_co]]: ...


@dataclass(frozen=True)
class Call(Operation[T_co]):
    """One request, with the model of its answer."""

    method: Method
    path: str
    read: Callable[[Any], T_co]
    params: Mapping[str, str] = field(default_factory=dict)
    body: Json | None = None
    etag: str | None = None
    """The object is changed or deleted only if it is still as it was then."""

    is_repeatable: bool = True
    is_deletion: bool = False
    """What is absent when its deletion is sent again was deleted by the first request."""

    absence: str | None = None
    """The error code that is answered with None instead of an error."""

    is_paged: bool = False
    limit: int | None = None
    """The most items of a paged list."""

    silence_seconds: float = SILENCE_SECONDS

    def steps(self, conduct: Conduct) -> Steps[Answer[T_co]]:
        try:
            return (yield from conduct.list_pages(self) if self.is_paged else conduct.ask(self))
        except ApiError as error:
            if not self._is_answered_by(error):
                raise
            return Answer(None, cast("Callable[[Any], T_co]", read_nothing))

    def or_none(self, absence: str) -> Call[T_co | None]:
        """The same, answered with None for an object that does not exist. Any other 404 is about the address."""
        call: Call[T_co | None] = self
        return replace(call, absence=absence)

    def _is_answered_by(self, error: ApiError) -> bool:
        was_deleted = self.is_deletion and error.is_repeated and error.status == 404 and error.code != UNKNOWN_ROUTE
        return was_deleted or error.code == self.absence


@dataclass(frozen=True)
class Conduct:
    """How calls are carried out with one platform."""

    url: str
    retries: Retries
    show: Callable[[str, float], None] = lambda _state, _seconds: None
    """Called by a wait with the state that it saw, and the seconds so far."""

    def ask(self, call: Call[R]) -> Steps[Answer[R]]:
        response, body = yield from self._request(call, call.params)
        return Answer(body.get("data"), call.read, response.status_code != 200, response.headers.get("ETag"))

    def list_pages(self, call: Call[R]) -> Steps[Answer[R]]:
        """All items, page by page; no further page once the limit is reached."""
        items: list[Any] = []
        params = call.params
        while True:
            _, page = yield from self._request(call, params)
            items += page["data"]
            token = page.get("continue")
            if not token or (call.limit is not None and len(items) >= call.limit):
                return Answer(items[: call.limit], call.read)
            params = {**params, "continue": token}

    def _request(self, call: Call[R], params: Mapping[str, str]) -> Steps[tuple[httpx.Response, Json]]:
        headers = {"If-Match": call.etag} if call.etag else {}
        exchange = Exchange(call.method, call.path, params, call.body, headers, call.silence_seconds)
        is_repeated = False
        for retries_left in reversed(range(self.retries.count + 1)):
            try:
                response: httpx.Response = yield exchange
            except httpx.RequestError as error:
                pause = self.retries.pause_seconds if self.retries.after_no_answer and call.is_repeatable else None
                if pause is None or not retries_left:
                    raise build_unreachable(
                        error, self.url, is_read=call.method == "GET", is_repeated=is_repeated
                    ) from None
                is_repeated = True
            else:
                pause = self.retries.find_pause(response, is_repeatable=call.is_repeatable)
                if pause is None or not retries_left:
                    break
                is_repeated |= not was_not_begun(response)
            yield Pause(pause)
        check_status(response, self.url, is_repeated=is_repeated)
        return response, parse_body(response, self.url)


def read_model(read: Callable[[Any], R], document: Any) -> R:
    """Fields that the model does not have are ignored: the server may be newer."""
    try:
        return read(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UnexpectedAnswerError(
            f"the platform's answer cannot be read ({place}: {first['msg']}): is this client as new as the platform?"
        ) from None


def was_not_begun(response: httpx.Response) -> bool:
    return response.status_code == httpx.codes.TOO_MANY_REQUESTS


def parse_body(response: httpx.Response, url: str) -> Json:
    """The envelope of a successful answer; empty where there is none."""
    if response.status_code == httpx.codes.NO_CONTENT:
        return {}
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict) or "data" not in body:
        raise build_unexpected(response, url)
    return body


def build_path(*segments: str) -> str:
    """The path of these segments. The first one is written as it is."""
    first, *names = segments
    return "/".join([first, *map(_quote, names)])


def _quote(name: str) -> str:
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise UnsendableError(f"{name!r} is not Unicode: write it in UTF-8") from None


def drop_none(**values: R | None) -> dict[str, R]:
    """The values that are given; the API fills in the others."""
    return {name: value for name, value in values.items() if value is not None}


def read_nothing(_document: Any) -> None:
    return None
