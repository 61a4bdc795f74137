"""The ASGI middleware around every request: its id, its limits, its headers, its log line, its count; and the last net.

Beside it stand the smaller layers: security headers, the `RateLimit` fields, the guard of an API without keys
(`auth: none`), and the extension by which a handler takes over an upgraded connection.
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
from urllib.parse import urlsplit

from fastapi.responses import Response

from gpu_platform.domain.network import is_loopback
from platform_api.http.bodies import error_response
from platform_api.http.capacity import Held, HeldBytes, Slots, body_seconds, current_holding
from platform_api.http.errors import ApiError, body_too_large, body_too_slow, caller_gone, forbidden
from platform_api.metrics import ApiMetrics

Header = tuple[bytes, bytes]

API_POLICY = b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""An answer that is JSON or text needs nothing, even if a browser were to show it as a page."""

SECURITY_HEADERS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-permitted-cross-domain-policies", b"none"),
)

OWN_SECURITY_HEADERS: tuple[Header, ...] = (
    *SECURITY_HEADERS,
    (b"content-security-policy", API_POLICY),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()"),
)

EXTENSION = "gpu_platform.upgrade"

Upgrade = Callable[[Sequence[tuple[bytes, bytes]]], tuple[asyncio.StreamReader, asyncio.StreamWriter]]
"""Sends a 101 with these headers; the connection is the caller's to read, to write and to close from then on."""

log = logging.getLogger(__name__)
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
REQUEST_ID = re.compile("[A-Za-z0-9._-]{1,64}")
NO_LIMIT = sys.maxsize
BODY_HEADERS = (b"content-length", b"transfer-encoding")

PART_BYTES = 65_536
"""An answer is written in parts of this size, each when the client has read most of the one before: the server writes
all that it is given at once, and keeps what the client does not read."""

UNEXPECTED = "something broke here; the log knows more"
current_request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="-")

STATE = "rate_limit_headers"
"""Where the lock on the routes leaves them: an attribute of `request.state`."""

OWN_SITES = ("same-origin", "none")
"""Values of `Sec-Fetch-Site`: the API's own page, and an address that the user typed."""


def build_security_headers(answer: Iterable[Header], *, is_proxied: bool) -> list[Header]:
    """The headers to add to an answer that has these. They tell a browser what it must not do with the answer.

    | header                     | the API's own answer     | a forwarded answer of a unit or storage                |
    | -------------------------- | ------------------------ | ------------------------------------------------------ |
    | set by the answer itself   | kept                     | kept                                                   |
    | Content-Security-Policy    | loads nothing, no frames | not added: it would break the unit's pages             |
    | Cross-Origin-Opener-Policy | same origin              | not added: it would break logins in a pop-up window    |
    | Permissions-Policy         | no camera, microphone, … | not added: a unit's page may use them                  |
    | any other one              | added                    | added                                                  |

    `Strict-Transport-Security` is set where TLS ends, which is before the API.
    """
    names = {name.lower() for name, _ in answer}
    return [header for header in (SECURITY_HEADERS if is_proxied else OWN_SECURITY_HEADERS) if header[0] not in names]


def find_upgrade(scope: Mapping[str, Any]) -> Upgrade | None:
    """None for a request that does not ask for a WebSocket."""
    upgrade: Upgrade | None = scope.get("extensions", {}).get(EXTENSION, {}).get("take_over")
    return upgrade


def with_upgrade(upgrade: Upgrade) -> dict[str, dict[object, object]]:
    """What a scope's `extensions` are then."""
    return {EXTENSION: {"take_over": upgrade}}


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
        held: Held,
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


class RateLimitHeaders:
    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                fields = scope.get("state", {}).get(STATE) or {}
                message["headers"] = add_fields(message.get("headers", ()), fields)
            await send(message)

        await self._application(scope, receive, send_with)


def add_fields(headers: Iterable[Header], fields: dict[str, str]) -> list[Header]:
    """Adds the fields that are not there yet: a unit that is called through the API may have limits of its own."""
    given = list(headers)
    names = {name.lower() for name, _ in given}
    own = ((name.lower().encode(), value.encode()) for name, value in fields.items())
    return [*given, *(header for header in own if header[0] not in names)]


def check_local_caller(headers: Iterable[Header], public_url: str | None) -> ApiError | None:
    """The refusal of a request with these headers; None for one that may pass.

    An API without keys listens on loopback, which the browser of the same user reaches, too. A page of another site can
    send requests there (cross-site request forgery), and read the answers once its own name points to 127.0.0.1 (DNS
    rebinding). Both show in headers that a page cannot change.

    | Host                                 | Origin                         | Sec-Fetch-Site            | answer  |
    | ------------------------------------ | ------------------------------ | ------------------------- | ------- |
    | missing, twice, any other            | any                            | any                       | 421     |
    | loopback, or the one of `publicURL`  | another than Host, publicURL   | any                       | 403     |
    | loopback, or the one of `publicURL`  | none, Host, publicURL          | `cross-site`, `same-site` | 403     |
    | loopback, or the one of `publicURL`  | none, Host, publicURL          | none or any other         | passes  |
    """
    lowered = [(name.lower(), value.decode("latin-1").strip().lower()) for name, value in headers]
    hosts = [value for name, value in lowered if name == b"host"]
    public = urlsplit(public_url.lower()) if public_url else None
    if len(hosts) != 1 or not _is_own_host(hosts[0], public.hostname if public else None):
        return ApiError(
            421,
            "misdirected_request",
            f'Host is "{", ".join(hosts)}": without keys (auth: none) this API answers to localhost, 127.0.0.1 and the '
            "host of publicURL only; call it there, or set auth: keys",
        )
    origins = [value for name, value in lowered if name == b"origin"]
    allowed = [f"http://{hosts[0]}", f"https://{hosts[0]}", *([f"{public.scheme}://{public.netloc}"] if public else [])]
    if any(origin not in allowed for origin in origins):
        return _refuse_page(f'Origin is "{", ".join(origins)}"')
    sites = [value for name, value in lowered if name == b"sec-fetch-site"]
    if any(site not in OWN_SITES for site in sites):
        return _refuse_page(f'Sec-Fetch-Site is "{", ".join(sites)}"')
    return None


def only_local_callers(application: Application, public_url: str | None) -> Application:
    """The application, with requests of web pages refused before it sees them."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers: Sequence[Header] = scope["headers"]
            refusal = check_local_caller(headers, public_url)
            if refusal is not None:
                raise refusal
        await application(scope, receive, send)

    return call


def _is_own_host(authority: str, public_host: str | None) -> bool:
    try:
        host = urlsplit(f"//{authority}").hostname
    except ValueError:
        return False
    return host is not None and (is_loopback(host) or host == public_host)


def _refuse_page(what: str) -> ApiError:
    return forbidden(
        f"{what}: without keys (auth: none) web pages of other origins may not call this API; "
        "call it from a program, or set auth: keys"
    )
