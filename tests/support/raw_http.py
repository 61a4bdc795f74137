"""Hostile HTTP clients: bytes as no library sends them, on plain sockets, and bounded."""

import asyncio
import json
import socket
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from typing import Any
from urllib.parse import urlsplit

CHUNK_OF_ONE = b"1\r\nx\r\n"
SMALL_BUFFER = 16 << 10
LARGE_CHUNK = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"


@dataclass(frozen=True)
class RawAnswer:
    """All that a server sent until it closed the connection."""

    data: bytes

    @property
    def status(self) -> int | None:
        """None where it closed the connection without an answer."""
        return int(self.data.split(b" ", 2)[1]) if self.data else None

    @property
    def headers(self) -> dict[str, str]:
        lines = self.data.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = json.loads(self.data.partition(b"\r\n\r\n")[2])["error"]
        return error


class RawClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.is_answered = False
        """Whether the first bytes of an answer have arrived at `read_slowly`."""

    async def send(self, data: bytes) -> bool:
        """Returns False where the server has closed the connection."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError:
            return False
        return True

    async def flood(self, part: bytes, limit: int) -> int:
        """Sends this part again and again; returns how many bytes went out before the server closed, or `limit`."""
        block = part * max(1, 65_536 // len(part))
        sent = 0
        for data in repeat(block, -(-limit // len(block))):
            if not await self.send(data):
                break
            sent += len(data)
        return sent

    async def read_slowly(self, size: int, every: float) -> RawAnswer:
        """Reads at most so many bytes at a time until the server closes the connection, or resets it."""
        data = bytearray()
        with suppress(ConnectionResetError):
            while part := await self._reader.read(size):
                data += part
                self.is_answered = True
                await asyncio.sleep(every)
        return RawAnswer(bytes(data))

    async def read_to_end(self) -> RawAnswer:
        """Reads until the server closes the connection, or resets it."""
        data = bytearray()
        try:
            while part := await self._reader.read(65_536):
                data += part
        except ConnectionResetError:
            pass
        return RawAnswer(bytes(data))

    def close(self) -> None:
        self._writer.transport.abort()


async def open_raw(url: str, *, receive_buffer: int | None = None) -> RawClient:
    """`receive_buffer`: bytes that the kernel takes for a client that does not read."""
    parts = urlsplit(url)
    if receive_buffer is None:
        return RawClient(*await asyncio.open_connection(parts.hostname, parts.port))
    plain = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plain, (parts.hostname, parts.port))
    return RawClient(*await asyncio.open_connection(sock=plain, limit=receive_buffer))


def build_head(line: str, *headers: str) -> bytes:
    return "\r\n".join([f"{line} HTTP/1.1", "Host: x", *headers, "", ""]).encode()
