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
from contextlib import suppress
from functools import partial
from typing import Any

from fastapi.responses import Response

from platform_api.http.envelope import error_response
from platform_api.http.errors import ApiError, body_too_large, unavailable
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

REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
DISCARDED_BYTES = 64 << 20
DISCARD_SECONDS = 5.0
"""How much of a body that is too large is read all the same, and for how long."""

NO_LIMIT = sys.maxsize

UNEXPECTED = "something broke here; the log knows more"
QUIET_PATHS = ("/livez", "/readyz", "/metrics")

current_request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="-")


class Frame:
    def __init__(
        self,
        application: Application,
        *,
        body_limit: int,
        in_flight_limit: int,
        metrics: ApiMetrics,
        larger_limits: Mapping[tuple[str, str], int] | None = None,
        passed_on: re.Pattern[str] | None = None,
    ) -> None:
        """`larger_limits` of a body, by method and path; none at all for paths whose bodies are `passed_on`, unkept."""
        self._application = application
        self._body_limit = body_limit
        self._larger_limits = dict(larger_limits or {})
        self._passed_on = passed_on
        self._in_flight_limit = in_flight_limit
        self._in_flight = 0
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        limit = self._limit_of(scope["method"], scope["path"])
        request = _Request(scope, receive, send, limit)
        token = current_request_id.set(request.id)
        self._in_flight += 1
        try:
            if self._in_flight > self._in_flight_limit and scope["path"] not in QUIET_PATHS:
                await request.refuse(unavailable("too many requests are under way"))
            elif request.is_too_large:
                await request.discard_body()
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
            self._in_flight -= 1
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
        log.log(
            logging.DEBUG if scope["path"] in QUIET_PATHS else logging.INFO,
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

    def __init__(self, scope: Scope, receive: Receive, send: Send, body_limit: int) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._body_limit = body_limit
        self._received = 0
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        self.id = given.decode() if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        self._waits_for_consent = b"expect" in headers
        length = headers.get(b"content-length", b"0")
        self.is_too_large = length.isdigit() and int(length) > body_limit
        self.status = 0
        self.began_at = time.perf_counter()
        if (upgrade := find_upgrade(scope)) is not None:
            scope["extensions"] = with_upgrade(partial(self._upgrade, upgrade))

    async def receive(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        if self._received > self._body_limit:
            if message.get("more_body"):
                await self.discard_body()
            raise body_too_large(self._body_limit)
        return message

    async def discard_body(self) -> None:
        """Whoever is still sending when we hang up does not get to read why. Nobody sends for ever, though, and whoever
        asked whether to send at all has not begun."""
        if self._waits_for_consent and not self._received:
            return
        left = DISCARDED_BYTES
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_SECONDS):
                while left > 0:
                    message = await self._receive()
                    left -= len(message.get("body", b""))
                    if not message.get("more_body"):
                        return

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = self._with_own(message.get("headers", ()))
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
        # Bytes of a body that nobody reads would be taken for the next request.
        headers = {**error.headers, "Connection": "close"}
        response: Response = error_response(error.status, error.code, error.message, self.id, headers=headers)
        await response(self._scope, self._receive, self.send)
