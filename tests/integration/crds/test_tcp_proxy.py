"""The faults of the proxy are the faults that its users believe in."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.tcp_proxy import HOST, TcpProxy
from tests.support.waiting import PATIENCE_SECONDS


@pytest.fixture
async def proxy() -> AsyncIterator[TcpProxy]:
    """In front of a server that sends everything back."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1000):
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(echo, HOST, 0)
    async with TcpProxy(server.sockets[0].getsockname()[1]) as proxy:
        yield proxy
    server.close()
    await server.wait_closed()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, proxy: TcpProxy) -> "Client":
        return cls(*await asyncio.open_connection(HOST, proxy.port))

    async def says(self, text: bytes, within: float = PATIENCE_SECONDS) -> bytes:
        self._writer.write(text)
        return await self.hears(within)

    async def hears(self, within: float = PATIENCE_SECONDS) -> bytes:
        return await asyncio.wait_for(self._reader.read(1000), within)

    async def close(self) -> None:
        self._writer.transport.abort()
        await asyncio.sleep(0)


async def test_it_forwards(proxy: TcpProxy) -> None:
    client = await Client.connect(proxy)
    assert await client.says(b"hello") == b"hello"
    assert proxy.accepted == 1
    await client.close()


async def test_frozen_connections_are_silent_and_deliver_after_the_thaw(proxy: TcpProxy) -> None:
    client = await Client.connect(proxy)
    await client.says(b"before")
    proxy.freeze()
    with pytest.raises(TimeoutError):
        await client.says(b"held back", within=0.1)
    newcomer = await Client.connect(proxy)
    with pytest.raises(TimeoutError):
        await newcomer.says(b"new", within=0.1)

    proxy.thaw()

    assert await client.hears() == b"held back"
    assert await newcomer.hears() == b"new"
    await client.close()
    await newcomer.close()


async def test_forgotten_connections_stay_dead_and_new_ones_work(proxy: TcpProxy) -> None:
    client = await Client.connect(proxy)
    await client.says(b"before")
    proxy.freeze()
    proxy.thaw(forget=True)

    with pytest.raises(TimeoutError):
        await client.says(b"anyone?", within=0.1)
    newcomer = await Client.connect(proxy)
    assert await newcomer.says(b"hello") == b"hello"
    await client.close()
    await newcomer.close()


async def test_cut_connections_are_reset_and_new_ones_work(proxy: TcpProxy) -> None:
    client = await Client.connect(proxy)
    await client.says(b"before")
    proxy.cut()

    with pytest.raises(ConnectionResetError):
        await client.hears()
    newcomer = await Client.connect(proxy)
    assert await newcomer.says(b"hello") == b"hello"
    await client.close()
    await newcomer.close()


async def test_refused_connections_are_refused_until_the_thaw(proxy: TcpProxy) -> None:
    client = await Client.connect(proxy)
    await client.says(b"before")
    proxy.refuse()

    with pytest.raises(ConnectionResetError):
        await client.hears()
    with pytest.raises(ConnectionRefusedError):
        await Client.connect(proxy)

    proxy.thaw()
    newcomer = await Client.connect(proxy)
    assert await newcomer.says(b"hello") == b"hello"
    await client.close()
    await newcomer.close()
