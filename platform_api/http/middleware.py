"""The frame around every request: its id, its limits, its headers, its log line, its count; and the last net.

Plain ASGI: a framework middleware would copy bodies, hide disconnects and buffer streams.
"""

import asyncio
import contextvars
import logging
import re
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any

from fastapi.responses import Response

from platform_api.http.envelope import error_response
from platform_api.http.errors import ApiError, body_too_large, body_too_slow, caller_gone
from platform_api.http.holding import Holding, current_holding
from platform_api.http.limits import HeldBytes, Slots, body_seconds
from platform_api.http.security_headers import build_security_headers
from platform_api.http.upgrades import Upgrade, find_upgrade, with_upgrade
from platform_api.metrics import ApiMetrics

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

REQUEST_ID = re.compile("[A-Za-z0-9._-]{1,64}")
NO_LIMIT = sys.maxsize
BODY_HEADERS = (b"content-length", b"transfer-encoding")

PART_BYTES = 65_536
"""An answer is written in parts of this size, each when the client has read most of the one before: the server writes
all that it is given at once, and keeps what the client does not read."""

UNEXPECTED = "something broke here; the log knows more"

current_request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="-")


class Frame:
    def __init__(
        self,
        application: Application,
        *,
        body_limit: int,
        in_flight_limit: int,
        client_seconds: float,
        tenant_of: Callable[[str], str | None],
        metrics: ApiMetrics,
        larger_limits: Mapping[tuple[str, str], int] | None = None,
        passed_on: re.Pattern[str] | None = None,
    ) -> None:
        """`larger_limits` of a body, by method and path; none at all for paths whose bodies are `passed_on`, unkept.
        `tenant_of` returns whose slot a request with this Authorization header takes; None without a valid key."""
        self._application = application
        self._body_limit = body_limit
        self._larger_limits = dict(larger_limits or {})
        self._passed_on = passed_on
        self._slots = Slots(in_flight_limit)
        self._held = HeldBytes()
        self._client_seconds = client_seconds
        self._tenant_of = tenant_of
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        limit = self._limit_of(scope["method"], scope["path"])
        tenant = self._tenant_of(_find_header(scope, b"authorization"))
        held = self._held.open(tenant)
        request = _Request(scope, receive, send, limit, self._client_seconds, held)
        token, holding = current_request_id.set(request.id), current_holding.set(held)
        refusal = self._slots.take(tenant)
        try:
            if refusal is not None:
                await request.refuse(refusal)
            elif request.is_too_large:
                await request.refuse(body_too_large(limit))
            else:
                await self._application(scope, request.receive, request.send)
        except ApiError as error:
            # The body was found too large where the application does not answer errors.
            if not request.status:
                await request.refuse(error)
        except Exception:
            log.exception("request.failed", extra={"requestID": request.id, "path": scope["path"]})
            if not request.status:
                await request.refuse(ApiError(500, "internal_error", UNEXPECTED))
        finally:
            if refusal is None:
                self._slots.release(tenant)
            held.release()
            current_holding.reset(holding)
            current_request_id.reset(token)
            self._note(scope, request)

    def _limit_of(self, method: str, path: str) -> int:
        if self._passed_on is not None and self._passed_on.match(path):
            return NO_LIMIT
        return self._larger_limits.get((method, path), self._body_limit)

    def _note(self, scope: Scope, request: "_Request") -> None:
        seconds = time.perf_counter() - request.began_at
        route = getattr(scope.get("route"), "path", "unknown")
        self._metrics.count_request(scope["method"], route, request.status, seconds)
        caller = scope.get("state", {}).get("caller")
        log.info(
            "request",
            extra={
                "requestID": request.id,
                "method": scope["method"],
                "path": scope["path"],
                "status": request.status,
                "milliseconds": round(seconds * 1_000, 1),
                "tenant": caller.tenant if caller else None,
                "key": caller.key_id if caller else None,
                "client": scope["client"][0] if scope.get("client") else None,
            },
        )


class _Request:
    """One request on its way: counts what comes in, adds the headers to what goes out."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        body_limit: int,
        client_seconds: float,
        held: Holding,
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._body_limit = body_limit
        self._client_seconds = client_seconds
        self._held = held
        self._has_body = any(name in BODY_HEADERS for name, _ in scope["headers"])
        self._is_body_over = False
        self._received = 0
        self._waited = 0.0
        given = _find_header(scope, b"x-request-id")
        self.id = given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        length = _find_header(scope, b"content-length")
        self._announced = int(length) if length.isdecimal() else 0
        self.is_too_large = self._announced > body_limit
        self.status = 0
        self.began_at = time.perf_counter()
        if (upgrade := find_upgrade(scope)) is not None:
            scope["extensions"] = with_upgrade(partial(self._upgrade, upgrade))

    async def receive(self) -> Message:
        """A body that is forwarded has no limit here: the reverse proxy has a deadline of its own."""
        if self._is_body_over or self._body_limit == NO_LIMIT:
            return await self._receive()
        self._held.grow_to(self._announced)
        message = await self._receive_in_time()
        if message["type"] == "http.disconnect" and self._has_body:
            raise caller_gone("the caller hung up before the end of the body")
        self._received += len(message.get("body", b""))
        self._is_body_over = not message.get("more_body")
        if self._received > self._body_limit:
            raise body_too_large(self._body_limit)
        self._held.grow_to(self._received)
        return message

    async def _receive_in_time(self) -> Message:
        """Counts the time in which the application waits for the client, not that in which the client waits."""
        began_at = time.monotonic()
        try:
            async with asyncio.timeout(body_seconds(self._received, self._client_seconds) - self._waited):
                return await self._receive()
        except TimeoutError:
            raise body_too_slow(self._received) from None
        finally:
            self._waited += time.monotonic() - began_at

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = self._with_own(message.get("headers", ()))
        body = message.get("body", b"")
        if len(body) > PART_BYTES:
            for start in range(0, len(body), PART_BYTES):
                await self._send({**message, "body": body[start : start + PART_BYTES], "more_body": True})
            # The server sends the end when it has room again: until then the request goes on, and what it holds counts.
            message = {**message, "body": b""}
        await self._send(message)

    def _upgrade(
        self, upgrade: Upgrade, headers: Sequence[Header]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.status = 101
        return upgrade([*headers, (b"x-request-id", self.id.encode())])

    def _with_own(self, headers: Iterable[Header]) -> list[Header]:
        said = list(headers)
        own = build_security_headers(said, is_proxied=self._body_limit == NO_LIMIT)
        return [*said, (b"x-request-id", self.id.encode()), *own]

    async def refuse(self, error: ApiError) -> None:
        response: Response = error_response(error.status, error.code, error.message, self.id, headers=error.headers)
        await response(self._scope, self._receive, self.send)


def _find_header(scope: Scope, wanted: bytes) -> str:
    """The first header of this name, as the application sees it; empty without one."""
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), "")
