"""A TCP proxy that fails on request, the way networks do, for tests of whoever talks through it."""

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import yaml

from tests.support.ports import free_port

CHUNK = 65_536
HOST = "127.0.0.1"
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER with zero seconds: closing sends RST instead of FIN."""


class TcpProxy:
    """Listens on a free port of loopback and forwards to a port there. Its four faults end with `thaw()`.

    - `freeze()`: from now on nothing passes in either direction, and nobody is told: no FIN, no RST. New
      connections are accepted, as by a load balancer whose backend is gone, and get no answer.
    - `cut()`: every connection is reset, once; new ones work.
    - `refuse()`: every connection is reset, and new ones are refused.
    - `thaw()`: all is well again, and what a freeze held back arrives. `thaw(forget=True)`: the connections of the
      freeze stay as they are for ever, as behind a router that lost its state; new ones work.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._is_frozen = False
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self.port = free_port()
        self.accepted = 0
        """Connections so far. One that was refused does not count."""

    async def __aenter__(self) -> Self:
        self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.refuse()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def freeze(self) -> None:
        self._is_frozen = True
        for connection in self._connections:
            connection.passes.clear()

    def thaw(self, *, forget: bool = False) -> None:
        self._is_frozen = False
        if not forget:
            for connection in self._connections:
                connection.passes.set()
        if self._listener is None:
            self._listen()

    def cut(self) -> None:
        for connection in self._connections:
            connection.reset()

    def refuse(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        self.cut()

    def _listen(self) -> None:
        self._listener = socket.create_server((HOST, self.port))
        self._listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            client, _ = listener.accept()
            self.accepted += 1
            task = asyncio.create_task(self._serve(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: socket.socket) -> None:
        connection = _Connection()
        self._connections.add(connection)
        if not self._is_frozen:
            connection.passes.set()
        try:
            near = await connection.open(client)
            far = await connection.open(await _connect(self._target_port))
            async with asyncio.TaskGroup() as group:
                group.create_task(connection.pump(near[0], far[1]))
                group.create_task(connection.pump(far[0], near[1]))
        except* OSError:
            pass
        finally:
            connection.reset()
            self._connections.discard(connection)


@dataclass(eq=False)
class _Connection:
    passes: asyncio.Event = field(default_factory=asyncio.Event)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def open(self, sock: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        streams = await asyncio.open_connection(sock=sock)
        self.writers.append(streams[1])
        return streams

    async def pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(CHUNK):
            await self.passes.wait()
            sink.write(data)
            await sink.drain()
        await self.passes.wait()
        if sink.can_write_eof():
            sink.write_eof()

    def reset(self) -> None:
        for writer in self.writers:
            sock = writer.get_extra_info("socket")
            if not writer.transport.is_closing() and sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            writer.transport.abort()


async def _connect(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(sock, (HOST, port))
    except BaseException:
        sock.close()
        raise
    return sock


def write_kubeconfig_through(proxy: TcpProxy, kubeconfig: Path, copy: Path) -> Path:
    """The same access, but by way of the proxy."""
    document = yaml.safe_load(kubeconfig.read_text())
    for cluster in document["clusters"]:
        cluster["cluster"]["server"] = f"https://{HOST}:{proxy.port}"
    copy.write_text(yaml.safe_dump(document))
    return copy
