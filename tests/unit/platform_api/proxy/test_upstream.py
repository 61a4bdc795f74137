"""WebSockets on their way: a handshake, and then bytes."""

import asyncio

import pytest

from tests.unit.platform_api.proxy.running_proxy import answer_echo, hang, listening, platform, read_head

MEGABYTE = 1 << 20
UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\n"


async def shake_hands(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    line, headers = await read_head(reader)
    assert (line, headers["upgrade"], headers["connection"]) == ("GET / HTTP/1.1", "websocket", "Upgrade")
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
    writer.write(b"Sec-WebSocket-Accept: " + headers["sec-websocket-key"].encode() + b"\r\n\r\nwelcome ")


async def test_after_a_handshake_bytes_go_both_ways() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()

    async with asyncio.timeout(30), listening(echo) as port, platform(port) as door:
        # What comes at once with the handshake counts as well.
        reader, writer = await hang(door, UPGRADE)
        writer.write(b"early ")
        line, headers = await read_head(reader)
        assert line.startswith("HTTP/1.1 101")
        assert headers["sec-websocket-accept"] == "x3JJHMbDL1EzLkh9GBhXDw=="
        assert headers["x-request-id"]
        assert await reader.readexactly(14) == b"welcome early "
        blob = bytes(range(256)) * 4_096
        writer.write(blob)
        assert await reader.readexactly(len(blob)) == blob
        writer.close()
        await door.ended("upgraded")


async def test_what_a_unit_says_last_in_a_tunnel_arrives() -> None:
    async def say_goodbye(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        writer.write(b"x" * MEGABYTE)
        await writer.drain()

    async with asyncio.timeout(30), listening(say_goodbye) as port, platform(port) as door:
        reader, writer = await hang(door, UPGRADE)
        await read_head(reader)
        assert len(await reader.read(-1)) == len(b"welcome ") + MEGABYTE
        writer.close()
        await door.ended("upgraded")


@pytest.mark.parametrize("ending", ["idle", "key_revoked"])
async def test_a_tunnel_ends_when_nothing_moves_or_its_key_is_gone(ending: str) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        await reader.read()

    idle = 2 if ending == "idle" else 20
    async with asyncio.timeout(20), listening(say_nothing) as port, platform(port, idle_seconds=idle) as door:
        reader, writer = await hang(door, UPGRADE)
        await read_head(reader)
        if ending == "key_revoked":
            door.keys.clear()
        assert await reader.read() == b"welcome "
        writer.close()
        await door.ended(ending)


async def test_a_unit_may_refuse_a_websocket() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")

    async with asyncio.timeout(20), listening(refuse) as port, platform(port) as door:
        reader, writer = await hang(door, UPGRADE)
        line, _ = await read_head(reader)
        assert line == "HTTP/1.1 403 Forbidden"
        assert await reader.readexactly(2) == b"no"
        writer.close()


async def test_where_nobody_takes_a_websocket_the_answer_is_as_always_and_the_connection_goes_on() -> None:
    async with asyncio.timeout(20), listening(answer_echo) as port, platform(port) as door:
        reader, writer = await door.connect()
        for _ in range(2):
            writer.write(b"GET /elsewhere HTTP/1.1\r\nHost: x\r\n" + UPGRADE + b"\r\n")
            line, headers = await read_head(reader)
            assert line == "HTTP/1.1 404 Not Found"
            await reader.readexactly(int(headers["content-length"]))
        writer.close()


async def test_another_upgrade_is_not_asked_for() -> None:
    async with asyncio.timeout(20), listening(answer_echo) as port, platform(port) as door:
        reader, writer = await hang(door, b"Connection: Upgrade, close\r\nUpgrade: h2c\r\n")
        seen = (await reader.read()).decode()
        writer.close()
    assert "HTTP/1.1 200 OK" in seen
    assert "h2c" not in seen
