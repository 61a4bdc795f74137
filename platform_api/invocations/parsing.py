"""The payload of an invocation stays the bytes that the caller sent, from the socket to the record.

It is looked at three times, each time by one pass over the text and, if that is large, beside the event loop:

| when                                    | what is done                          | what is built              |
| --------------------------------------- | ------------------------------------- | -------------------------- |
| the request is there                    | count values and depth, cut it out    | nothing                    |
| the function is there and there is room | check that it is JSON, hash it parsed | its values, for a moment   |
| a large result is shown                 | check that it is one value            | the same, if within bounds |
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakValueDictionary

from gpu_platform.api_models.invocations import Invoke
from gpu_platform.domain.invocations import InvocationRequest
from gpu_platform.domain.json_text import JsonBoundsError, check_bounds, find_member, parse_json
from platform_api.http.bodies import decode_body
from platform_api.http.errors import invalid_field

T = TypeVar("T")

PAYLOAD = "payload"
NULL = b"null"

LARGEST_FIELDS = 256 << 10
"""Bytes of a request besides its payload. Headers and attributes have 32 KiB, and escaped six times that."""

SMALL = 8 << 10
"""Bytes of a text that is looked at on the event loop: in a millisecond, however it is made."""

THREADS = 2
"""How many large texts are parsed at once. Each may take some tens of MiB meanwhile."""


@dataclass
class Asked:
    """An invocation as a caller asks for it."""

    fields: Invoke
    payload: bytes | None
    """JSON by its brackets only: it is not parsed yet."""

    def take_payload(self) -> bytes:
        """Once. A caller may wait for minutes, and its payload would be kept for as long."""
        payload, self.payload = self.payload, None
        if payload is None:
            raise RuntimeError("the payload was taken before")
        return payload


@dataclass(frozen=True)
class Payload:
    content: bytes | None
    """JSON; None for `null` and for none at all."""

    request_hash: str
    """Of the request with this payload, as parsed JSON."""


class TextThreads:
    """Threads for large texts. A tenant has one of them at most, so that the other one is there for others."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="json")
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self, tenant: str, text: bytes, work: Callable[[], T]) -> T:
        if len(text) <= SMALL:
            return work()
        turn = self._turns.setdefault(tenant, asyncio.Lock())
        async with turn:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def read_asked(body: bytes) -> Asked:
    """Every field but the payload is decoded."""
    try:
        check_bounds(body)
        found = find_member(body, PAYLOAD)
        payload = found.value(body) if found else NULL
    except JsonBoundsError as error:
        raise invalid_field("", f"the body {error}") from None
    except ValueError as error:
        raise invalid_field("", f"the body is not JSON: {error}") from None
    rest = body if found is None else b'%b"%b":null%b' % (body[: found.start], PAYLOAD.encode(), body[found.end :])
    if len(rest) > LARGEST_FIELDS:
        raise invalid_field("", f"the body has more than {LARGEST_FIELDS} bytes besides its payload")
    return Asked(decode_body(Invoke, rest), payload)


def check_payload(request: InvocationRequest, content: bytes) -> Payload:
    try:
        value = parse_json(content)
    except ValueError as error:
        raise invalid_field(PAYLOAD, f"is not JSON: {error}") from None
    return Payload(None if value is None else content, request.hash_with(value))


def check_result(content: bytes) -> None:
    """ValueError for what would not be one value in an answer. A worker stored it: what is within the bounds is read to
    the last byte, and of anything larger the brackets are."""
    try:
        check_bounds(content)
    except JsonBoundsError:
        check_bounds(content, len(content))
        return
    parse_json(content)
