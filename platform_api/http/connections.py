"""A client's connection: what may arrive on it, how much, and in how much time.

The framing is HTTP/1.1, stricter than h11's: what two servers could read in two ways is refused. A request with
`Upgrade: websocket` comes as a request like any other one, with the same lock, limits and log line, and with an
extension in its scope: uvicorn's own WebSockets are messages, and the reverse proxy wants the bytes.

| in a request's head or trailers                  | h11 alone            | here |
| ------------------------------------------------ | -------------------- | ---- |
| a line that ends with LF, not CRLF               | accepted             | 400  |
| a line that continues the one before (obs-fold)  | joined               | 400  |
| more than 16 KiB                                 | accepted in one read | 400  |
| both Content-Length and Transfer-Encoding        | the latter counts    | 400  |
| Transfer-Encoding in HTTP/1.0                    | accepted             | 400  |
| a body in more chunks than `may_have_chunks`     | accepted             | 400  |
"""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import h11
from h11._receivebuffer import ReceiveBuffer
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from platform_api.http.bodies import JSON, error_body
from platform_api.http.capacity import (
    DRAIN_PAUSE_SECONDS,
    Connections,
    Phase,
    answer_seconds,
    is_drained,
    phase_seconds,
)
from platform_api.http.middleware import OWN_SECURITY_HEADERS, Application, Message, Receive, Scope, Send, with_upgrade

HEAD_LIMIT = 16_384
FREE_CHUNKS = 512
BYTES_PER_CHUNK = 128

CHUNKS_PER_SECOND = 100
"""Parsing a chunk takes the event loop about 10 µs, however few bytes it has. Live uploads to units send small ones."""

FOLDS = (b" ", b"\t")
NOT_HTTP = "the request is not valid HTTP/1.1"
READ_LIMIT = 65_536
log = logging.getLogger(__name__)
CLOSE = (b"connection", b"close")

UNREAD = (h11.SEND_BODY, h11.ERROR)
"""States of a client whose request was not parsed to its end."""

OWN_DEADLINE = "has_own_deadline"
"""In the state of a request: its answer may wait for the client for as long as what sends it allows."""

WAITING = (Phase.SILENT, Phase.HEAD, Phase.IDLE, Phase.CLOSING)
ENDING = (Phase.DRAINING, Phase.CLOSING)


def find_lines_fault(data: bytes | bytearray) -> str | None:
    """Returns what is wrong with a head or with trailers, of which this has arrived so far; a body may follow.

    It runs once for each read from the socket, so that it uses the methods of bytes: with a regular expression a
    head in single bytes costs seconds.
    """
    blank_line = data.find(b"\r\n\r\n")
    end = 2 if data.startswith(b"\r\n") else blank_line + 4 if blank_line >= 0 else len(data)
    if end > HEAD_LIMIT:
        return f"the head has more than {HEAD_LIMIT} bytes; send fewer or shorter headers"
    lines = data[:end]
    if lines.count(b"\n") != lines.count(b"\r\n"):
        return "a line of the head ends with LF alone; end every line with CRLF"
    if lines.startswith(FOLDS) or any(b"\n" + fold in lines for fold in FOLDS):
        return "a header is folded over two lines; send it on one line"
    return None


def find_body_fault(request: h11.Request) -> str | None:
    """Returns why servers could disagree on where this request's body ends."""
    names = {name for name, _ in request.headers}
    if b"transfer-encoding" not in names:
        return None
    if b"content-length" in names:
        return "the request has both Content-Length and Transfer-Encoding; send one of them"
    if request.http_version < b"1.1":
        return "Transfer-Encoding needs HTTP/1.1; send Content-Length, or speak HTTP/1.1"
    return None


def may_have_chunks(chunks: int, size: int, seconds: float) -> bool:
    """Whether a body of so many bytes may have so many chunks, so many seconds after its head.

    | chunks | bytes | seconds | acceptable |
    | ------ | ----- | ------- | ---------- |
    | 512    | 512   | 0       | yes        |
    | 517    | 513   | 0       | no         |
    | 8192   | 1 MiB | 0       | yes        |
    | 3600   | 3600  | 3600    | yes        |
    """
    return chunks <= FREE_CHUNKS + size // BYTES_PER_CHUNK + seconds * CHUNKS_PER_SECOND


class StrictConnection(h11.Connection):
    """The server's side of a connection. `fault` says why the last request was refused."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, HEAD_LIMIT)
        # h11 takes heads and trailers, and nothing else, out of its buffer by lines.
        self._receive_buffer = _StrictBuffer()
        self.fault = NOT_HTTP
        self._chunks = 0
        self._size = 0
        self._began_at = 0.0

    @property
    def has_data(self) -> bool:
        """Whether bytes have arrived that are not parsed yet."""
        return bool(self._receive_buffer)

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                self._chunks, self._size, self._began_at = 0, 0, time.monotonic()
                _refuse(find_body_fault(event))
            elif isinstance(event, h11.Data):
                _refuse(self._count(event))
        except _FaultError as error:
            self.fault = str(error)
            raise h11.RemoteProtocolError(self.fault) from None
        return event

    def _count(self, data: h11.Data) -> str | None:
        self._size += len(data.data)
        self._chunks += data.chunk_end
        if may_have_chunks(self._chunks, self._size, time.monotonic() - self._began_at):
            return None
        return f"the body has {self._chunks} chunks for {self._size} bytes; send larger chunks"


class _FaultError(Exception):
    """A request that this module refuses."""


def _refuse(fault: str | None) -> None:
    if fault is not None:
        raise _FaultError(fault)


class _StrictBuffer(ReceiveBuffer):
    def maybe_extract_lines(self) -> list[bytearray] | None:
        _refuse(find_lines_fault(self._data))
        return super().maybe_extract_lines()


class UpgradableProtocol(H11Protocol):
    def _should_upgrade(self) -> bool:
        """Never by uvicorn's own means; the application is asked first."""
        if self._get_upgrade() == b"websocket":
            self.scope["extensions"] = with_upgrade(self._upgrade)
        return False

    def _upgrade(self, headers: Sequence[tuple[bytes, bytes]]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.transport.write(self.conn.send(h11.InformationalResponse(status_code=101, headers=list(headers))))
        # As far as uvicorn is concerned, this connection is gone: it waits for nothing, and closes nothing.
        self.cycle.disconnected = True
        self.connections.discard(self)
        reader = asyncio.StreamReader(READ_LIMIT, self.loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self.loop)
        protocol.connection_made(self.transport)
        self.transport.set_protocol(protocol)
        early, _ = self.conn.trailing_data
        if early:
            reader.feed_data(early)
        # A paused connection has it that bytes of the next language wait; from here on the reader pauses it.
        self.flow.resume_reading()
        return reader, asyncio.StreamWriter(self.transport, protocol, reader, self.loop)


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
