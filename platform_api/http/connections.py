"""A client's connection: what may arrive on it, how much, and in how much time.

Uvicorn's protocol parses what arrives after an answer, and waits without a limit for the end of a head. This one has a
deadline for each phase (`limits`) and for a client that does not read its answer, refuses ambiguous framing
(`framing`), and closes the connection after an answer to a request whose body was not read to its end.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import RequestResponseCycle

from platform_api.http.envelope import JSON, error_body
from platform_api.http.framing import StrictConnection
from platform_api.http.limits import (
    DRAIN_PAUSE_SECONDS,
    Connections,
    Phase,
    answer_seconds,
    is_drained,
    phase_seconds,
)
from platform_api.http.middleware import Application, Message, Receive, Scope, Send
from platform_api.http.security_headers import OWN_SECURITY_HEADERS
from platform_api.http.upgrades import UpgradableProtocol

log = logging.getLogger(__name__)

CLOSE = (b"connection", b"close")
UNREAD = (h11.SEND_BODY, h11.ERROR)
"""States of a client whose request was not parsed to its end."""

OWN_DEADLINE = "has_own_deadline"
"""In the state of a request: its answer may wait for the client for as long as what sends it allows."""

WAITING = (Phase.SILENT, Phase.HEAD, Phase.IDLE, Phase.CLOSING)
ENDING = (Phase.DRAINING, Phase.CLOSING)


def build_protocol(connections: Connections, client_seconds: float) -> type[asyncio.Protocol]:
    """Returns what uvicorn calls for each connection. It wants a class; a partial serves it as well."""
    return cast(
        type[asyncio.Protocol], partial(ClientConnection, all_connections=connections, client_seconds=client_seconds)
    )


class ClientConnection(UpgradableProtocol):
    def __init__(self, *, all_connections: Connections, client_seconds: float, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self.conn: StrictConnection = StrictConnection()
        self.has_shown_key = False
        self._application = cast(Application, self.app)
        self.app = cast(Any, self._serve)
        self._all_connections = all_connections
        self._client_seconds = client_seconds
        self._phase = Phase.SILENT
        self._deadline: asyncio.TimerHandle | None = None
        self._drained_bytes = 0
        self._drained_reads = 0
        self._written = 0
        self._waited = 0.0
        self._waits_since: float | None = None
        self._answer_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._all_connections.add(self):
            self._enter(Phase.SILENT)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._phase is Phase.DRAINING:
            self._discard(len(data))
        elif self._phase is not Phase.CLOSING:
            super().data_received(data)
            self._follow_parser()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._waits_since = self.loop.time()
        self._start_answer_clock()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_answer_clock()
        if self._waits_since is not None:
            self._waited += self.loop.time() - self._waits_since
            self._waits_since = None

    def on_response_complete(self) -> None:
        if self._phase in ENDING:
            return
        self.has_shown_key = self.has_shown_key or self.scope["state"].get("caller") is not None
        super().on_response_complete()
        self._follow_parser()

    def shutdown(self) -> None:
        if self._phase in ENDING:
            self.transport.abort()
        else:
            super().shutdown()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._enter(Phase.CLOSING)

    def send_400_response(self, msg: str) -> None:
        del msg  # Uvicorn's own, which is the same for all faults.
        self._refuse(400, "invalid_request", self.conn.fault, "framing")

    def abort(self) -> None:
        self.transport.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written += len(data)
        self.transport.write(data)

    def hang_up(self) -> None:
        """Closes the connection. A client that is still sending would be reset and not get to read the answer, so that
        what arrives is discarded for a while before."""
        if self.transport.is_closing() or self._phase in ENDING:
            return
        if (self.conn.their_state in UNREAD or self.conn.has_data) and self._all_connections.may_drain(self):
            self._enter(Phase.DRAINING)
            with suppress(OSError):
                self.transport.write_eof()
            self.flow.resume_reading()
        else:
            self._close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.cycle.transport = _AnswerTransport(self)
        self._written, self._waited = 0, 0.0
        if self._waits_since is not None:
            # The client has not read the answer before this one yet.
            self._start_answer_clock()

        async def send_and_close(message: Message) -> None:
            if message["type"] == "http.response.start" and self.conn.their_state in UNREAD:
                message["headers"] = [*message.get("headers", ()), CLOSE]
            await send(message)

        await self._application(scope, receive, send_and_close)

    def _upgrade(self, headers: Sequence[tuple[bytes, bytes]]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        upgraded = super()._upgrade(headers)
        self._forget()
        return upgraded

    def _follow_parser(self) -> None:
        """Enters the phase that the parser's state shows."""
        if self._phase in ENDING:
            return
        if self.conn.their_state is not h11.IDLE:
            self._enter(Phase.REQUEST)
        elif self.conn.has_data:
            self._enter(Phase.HEAD)
        else:
            self._enter(Phase.IDLE)

    def _enter(self, phase: Phase) -> None:
        if phase is self._phase and self._deadline is not None:
            return
        self._phase = phase
        self._stop_clock()
        seconds = phase_seconds(phase, self._client_seconds)
        if seconds is not None:
            self._deadline = self.loop.call_later(seconds, self._expire)
        if phase in WAITING:
            self._all_connections.mark_waiting(self)
        else:
            self._all_connections.mark_busy(self)

    def _start_answer_clock(self) -> None:
        self._stop_answer_clock()
        sent = self._written - self.transport.get_write_buffer_size()
        seconds = answer_seconds(max(0, sent), self._client_seconds) - self._waited
        self._answer_deadline = self.loop.call_later(seconds, self._give_up)

    def _stop_answer_clock(self) -> None:
        if self._answer_deadline is not None:
            self._answer_deadline.cancel()
            self._answer_deadline = None

    def _give_up(self) -> None:
        """Closes a connection whose client does not read its answer. The request ends as if the client had done so."""
        self._answer_deadline = None
        if self.scope["state"].get(OWN_DEADLINE):
            return
        self._all_connections.count_refused("answer_timeout")
        client = self.client[0] if self.client else None
        log.info("connection.closed", extra={"client": client, "error": "the client reads its answer too slowly"})
        self.transport.abort()

    def _forget(self) -> None:
        self._stop_clock()
        self._stop_answer_clock()
        self._all_connections.remove(self)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        self._deadline = None
        if self._phase is Phase.CLOSING or self.transport.is_closing():
            self.transport.abort()
        elif self._phase is Phase.HEAD:
            message = f"the head of the request was not complete after {self._client_seconds:g} s; send it at once"
            self._refuse(408, "request_timeout", message, "head_timeout")
        else:
            self._close()

    def _refuse(self, status: int, code: str, message: str, reason: str) -> None:
        """Answers for the application, unless its own answer has begun, and hangs up."""
        self._all_connections.count_refused(reason)
        client = self.client[0] if self.client else None
        log.info("connection.refused", extra={"client": client, "status": status, "error": message})
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(_build_answer(status, code, message))
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        self.hang_up()

    def _close(self) -> None:
        self.transport.close()
        self._enter(Phase.CLOSING)

    def _discard(self, size: int) -> None:
        self._drained_bytes += size
        self._drained_reads += 1
        if is_drained(self._drained_bytes, self._drained_reads):
            self._close()
        else:
            self.transport.pause_reading()
            self.loop.call_later(DRAIN_PAUSE_SECONDS, self._read_on)

    def _read_on(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()


class _AnswerTransport(asyncio.Transport):
    """What uvicorn writes an answer to, and closes after it: the connection then hangs up in its own way."""

    def __init__(self, connection: ClientConnection) -> None:
        super().__init__()
        self._connection = connection

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._connection.write(data)

    def is_closing(self) -> bool:
        return self._connection.transport.is_closing()

    def close(self) -> None:
        self._connection.hang_up()


def _build_answer(status: int, code: str, message: str) -> bytes:
    """Returns a whole answer as bytes: after a fault h11 sends none."""
    request_id = secrets.token_hex(8)
    body = json.dumps(error_body(code, message, request_id), ensure_ascii=False, separators=(",", ":")).encode()
    headers = [
        (b"content-type", JSON.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", request_id.encode()),
        *OWN_SECURITY_HEADERS,
        CLOSE,
    ]
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode(), *(b"%b: %b" % header for header in headers)]
    return b"\r\n".join([*lines, b"", body])
