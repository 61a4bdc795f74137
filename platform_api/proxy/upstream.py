"""The upstream side of the reverse proxy: one HTTP/1.1 request on a connection of its own, and the tunnel after a 101.

Speaks bytes and headers; decides nothing about either. What tunnelled bytes mean is the two ends' affair.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

import h11

from platform_api.http.middleware import Upgrade
from platform_api.proxy.headers import Header, Headers
from platform_api.proxy.limits import Lifeline
from platform_api.proxy.pod_address import Target

CONNECT_SECONDS = 5.0
"""For a connection inside the cluster. A pod that is Ready and does not take one for so long has lost its network."""

CHUNK = 65_536

HEAD_LIMIT = 65_536
"""Bytes of an answer's headers. Four times what we take from callers: cookies of notebooks are large."""

SWITCHED = 101
STATUSES = range(200, 600)


class NoConnectionError(Exception):
    """Nobody took the connection."""


class BrokenAnswerError(Exception):
    """The answer is not one of HTTP, or ends too early."""


@dataclass(frozen=True)
class Head:
    """How an answer begins."""

    status: int
    headers: list[Header]


class Upstream:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)

    async def send_head(self, method: str, path: bytes, headers: list[Header]) -> None:
        await self._send(h11.Request(method=method, target=path, headers=headers))

    async def send_body(self, data: bytes) -> None:
        await self._send(h11.Data(data=data))

    async def end_body(self) -> None:
        await self._send(h11.EndOfMessage())

    async def read_head(self) -> Head:
        while True:
            match await self._next():
                case h11.InformationalResponse(status_code=status, headers=headers) if status == SWITCHED:
                    return Head(status, list(headers))
                case h11.Response(status_code=status, headers=headers) if status in STATUSES:
                    return Head(status, list(headers))
                case h11.Response(status_code=status):
                    raise BrokenAnswerError(f"{status} is no status that can be passed on")
                case h11.InformationalResponse():
                    continue
                case _:
                    raise BrokenAnswerError("it hung up without an answer of HTTP")

    async def read_body(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)
        if not isinstance(event, h11.EndOfMessage):
            raise BrokenAnswerError("it hung up in the middle of its answer")

    def switch(self) -> tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]:
        """After a 101: the bytes that came with it, and the connection, which no longer speaks HTTP."""
        return self._http.trailing_data[0], self._reader, self._writer

    def close(self) -> None:
        """At once: whoever ends a call early wants no more of it, and a whole one has nothing left to send."""
        self._writer.transport.abort()

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._writer.write(data)
            await self._writer.drain()

    async def _next(self) -> object:
        broken_by = "its answer is not one of HTTP: {}"
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                data = await self._reader.read(CHUNK)
                if not data:
                    # Of some answers, this is the proper end.
                    broken_by = f"it hung up {self._how_far()}"
                self._http.receive_data(data)
        except h11.RemoteProtocolError as error:
            raise BrokenAnswerError(broken_by.format(error)) from error
        except OSError as error:
            raise BrokenAnswerError(f"the connection broke: {error.strerror or error}") from error
        return event

    def _how_far(self) -> str:
        has_begun = self._http.their_state is not h11.SEND_RESPONSE
        return "in the middle of its answer" if has_begun else "without an answer of HTTP"


def _build_unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


UNVERIFIED = _build_unverified()
"""Made once: a default one reads the machine's certificates, which takes longer than the call."""


async def connect(target: Target) -> Upstream:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                target.address, target.port, limit=CHUNK, ssl=UNVERIFIED if target.is_tls else None
            )
    except TimeoutError:
        kind = "TLS connection" if target.is_tls else "connection"
        raise NoConnectionError(f"port {target.port} took no {kind} within {CONNECT_SECONDS:.0f} s") from None
    except ConnectionRefusedError:
        raise NoConnectionError(f"port {target.port} refused the connection") from None
    except ssl.SSLError as error:
        raise NoConnectionError(
            f"the TLS handshake on port {target.port} failed ({error.reason}); access.scheme is https: "
            "set it to http if the port speaks plain HTTP"
        ) from None
    except OSError as error:
        # Without the address, which asyncio puts into its own words: it is none of the caller's business.
        why = error.strerror or type(error).__name__
        raise NoConnectionError(f"port {target.port} cannot be reached: {why}") from None
    return Upstream(reader, writer)


async def run_tunnel(upgrade: Upgrade, headers: Headers, upstream: Upstream, lifeline: Lifeline) -> None:
    """`headers` are those of the 101 to the caller."""
    early, their_reader, their_writer = upstream.switch()
    our_reader, our_writer = upgrade(headers)
    try:
        our_writer.write(early)
        ways = [
            asyncio.create_task(_copy(our_reader, their_writer, lifeline)),
            asyncio.create_task(_copy(their_reader, our_writer, lifeline)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.wait(ways)
        for writer in (our_writer, their_writer):
            writer.close()
        # What was said last is still on its way out.
        with suppress(OSError):
            await asyncio.gather(our_writer.wait_closed(), their_writer.wait_closed())
    finally:
        # Whoever does not read what is left would keep the connection for ever.
        for writer in (our_writer, their_writer):
            writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lifeline: Lifeline) -> None:
    with suppress(OSError):
        while data := await reader.read(CHUNK):
            lifeline.touch()
            writer.write(data)
            await writer.drain()
            lifeline.touch()
