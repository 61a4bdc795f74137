"""Passing a call on: its body up, the answer down, each as fast as the slower side takes it, and nothing kept.

An answer begins only when the target's own has begun, so that whatever goes wrong before is an error of ours, with a
reason. Whatever goes wrong after that can only be shown by an answer that breaks off.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import ExitStack
from typing import Any

from fastapi import Request
from fastapi.responses import Response

from platform_api.auth.keys import Caller
from platform_api.http.connections import OWN_DEADLINE
from platform_api.http.errors import ApiError, bad_gateway, caller_gone, gateway_timeout, not_found, unauthenticated
from platform_api.http.middleware import Receive, Send, current_request_id, find_upgrade
from platform_api.metrics import ApiMetrics
from platform_api.proxy.headers import Passage, build_answer_headers, build_request_headers, build_upgrade_headers
from platform_api.proxy.limits import CutError, Ending, Lifeline, Places
from platform_api.proxy.pod_address import Target, split_path
from platform_api.proxy.upstream import (
    SWITCHED,
    BrokenAnswerError,
    Head,
    NoConnectionError,
    Upstream,
    connect,
    run_tunnel,
)

log = logging.getLogger(__name__)


class Forwarder:
    def __init__(
        self, limit: int, idle_seconds: float, metrics: ApiMetrics, *, public_scheme: str | None = None
    ) -> None:
        """`public_scheme`: what callers speak, where somebody in front of the API speaks it with them."""
        self._public_scheme = public_scheme
        self._places = Places(limit, metrics)
        self._idle_seconds = idle_seconds
        self._metrics = metrics

    async def forward(
        self, request: Request, caller: Caller, finding: Awaitable[Target], prefix: str, is_welcome: Callable[[], bool]
    ) -> Response:
        """The target's answer to this request. `prefix` is what of the path is ours, and comes off."""
        with ExitStack() as stack:
            try:
                target = await finding
                split = split_path(request.scope["raw_path"], prefix)
                if split is None:
                    raise not_found(
                        "not_found", "there is no such path: the slashes up to the target's own are plain ones"
                    )
                stack.enter_context(self._places.one(caller.tenant))
            except ApiError:
                self._metrics.count_passage("refused")
                raise
            lifeline = Lifeline(self._idle_seconds, is_welcome)
            passage = Passage(
                authority=target.authority,
                prefix=split[0],
                client=request.client.host if request.client else "unknown",
                scheme=self._public_scheme or request.url.scheme,
                request_id=current_request_id.get(),
                is_upgrade=request.method == "GET" and find_upgrade(request.scope) is not None,
                is_public=target.is_public,
            )
            path = split[1] + (b"?" + query if (query := request.scope["query_string"]) else b"")
            exchange = await self._begin(request, target, path, passage, lifeline, stack)
            return _PassedOn(exchange, target, passage, self._metrics, stack.pop_all())

    async def _begin(
        self, request: Request, target: Target, path: bytes, passage: Passage, lifeline: Lifeline, stack: ExitStack
    ) -> "_Exchange":
        try:
            async with lifeline.bounded():
                upstream = await connect(target)
                stack.callback(upstream.close)
                exchange = _Exchange(upstream, request.receive, lifeline)
                stack.callback(exchange.stop_sending)
                await exchange.begin(request.method, path, build_request_headers(request.headers.raw, passage))
                return exchange
        except NoConnectionError as error:
            self._metrics.count_passage("unreachable")
            raise bad_gateway(f"{target.what} does not answer: {error}") from None
        except BrokenAnswerError as error:
            self._metrics.count_passage("broken")
            raise bad_gateway(f"{target.what} broke off before its answer: {error}") from None
        except CutError as cut:
            self._metrics.count_passage(cut.ending)
            raise self._refusal_of(cut.ending, target) from None

    def _refusal_of(self, ending: Ending, target: Target) -> ApiError:
        match ending:
            case Ending.IDLE:
                return gateway_timeout(f"{target.what} did not begin to answer in {self._idle_seconds:.0f} s")
            case Ending.KEY_REVOKED:
                return unauthenticated("this API key is no longer valid")
            case Ending.CALLER_GONE:
                return caller_gone("the caller hung up")


class _Exchange:
    """One request and its answer, on their way."""

    def __init__(self, upstream: Upstream, receive: Receive, lifeline: Lifeline) -> None:
        self.upstream = upstream
        self.lifeline = lifeline
        self._receive = receive
        self._sending: asyncio.Task[None] | None = None
        self.head = Head(0, [])

    async def begin(self, method: str, path: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        try:
            await self.upstream.send_head(method, path, headers)
        except OSError as error:
            raise BrokenAnswerError(f"the connection broke: {error.strerror or error}") from error
        self._sending = asyncio.create_task(self._send_body())
        self.head = await self.upstream.read_head()
        self.lifeline.touch()

    def stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()

    async def _send_body(self) -> None:
        """Goes on to listen after the body's end: that is how a caller who hangs up is noticed."""
        is_taken = True
        while (message := await self._receive())["type"] == "http.request":
            self.lifeline.touch()
            try:
                if is_taken and message.get("body"):
                    await self.upstream.send_body(message["body"])
                if is_taken and not message.get("more_body"):
                    await self.upstream.end_body()
                    is_taken = False
            except OSError:
                # It wants no more, and may have answered all the same. The caller is heard out, or it would not listen.
                is_taken = False
        self.lifeline.cut(Ending.CALLER_GONE)


class _PassedOn(Response):
    """The target's answer, sent as it comes. Holds the place and the connection until it is over."""

    def __init__(
        self, exchange: _Exchange, target: Target, passage: Passage, metrics: ApiMetrics, held: ExitStack
    ) -> None:
        self._exchange = exchange
        self._target = target
        self._passage = passage
        self._metrics = metrics
        self._held = held
        self.status_code = exchange.head.status
        self.background = None
        self.raw_headers = build_answer_headers(exchange.head.headers, passage)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        del receive  # The exchange has been listening to it all along.
        outcome = "cancelled"
        with self._held:
            try:
                async with self._exchange.lifeline.bounded():
                    outcome = await self._pass_on(scope, send)
            except CutError as cut:
                outcome = cut.ending
            except BrokenAnswerError as error:
                outcome = "broken"
                log.warning(
                    "proxy.broken",
                    extra={"requestID": current_request_id.get(), "target": self._target.what, "error": str(error)},
                )
            finally:
                self._metrics.count_passage(outcome)

    async def _pass_on(self, scope: MutableMapping[str, Any], send: Send) -> str:
        if self.status_code == SWITCHED and (upgrade := find_upgrade(scope)) is not None:
            self._exchange.stop_sending()
            headers = build_upgrade_headers(self._exchange.head.headers, self._passage)
            await run_tunnel(upgrade, headers, self._exchange.upstream, self._exchange.lifeline)
            return "upgraded"
        scope["state"][OWN_DEADLINE] = True  # The lifeline: a caller may pause a download or a film.
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for part in self._exchange.upstream.read_body():
            self._exchange.lifeline.touch()
            await send({"type": "http.response.body", "body": part, "more_body": True})
            self._exchange.lifeline.touch()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return "answered"
