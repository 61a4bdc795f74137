"""Connections that change their language: a handler may answer 101 and take the connection over.

Uvicorn has WebSockets only by way of a library that takes them apart into messages. Whoever passes them on wants the
bytes. So a request with `Upgrade: websocket` comes as a request like any other one, with the same lock, limits and log
line, and with an extension in its scope, which does the rest.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

EXTENSION = "gpu_platform.upgrade"

Upgrade = Callable[[Sequence[tuple[bytes, bytes]]], tuple[asyncio.StreamReader, asyncio.StreamWriter]]
"""Sends a 101 with these headers; the connection is the caller's to read, to write and to close from then on."""

READ_LIMIT = 65_536


def find_upgrade(scope: Mapping[str, Any]) -> Upgrade | None:
    """None for a request that does not ask for a WebSocket."""
    upgrade: Upgrade | None = scope.get("extensions", {}).get(EXTENSION, {}).get("take_over")
    return upgrade


def with_upgrade(upgrade: Upgrade) -> dict[str, dict[object, object]]:
    """What a scope's `extensions` are then."""
    return {EXTENSION: {"take_over": upgrade}}


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
