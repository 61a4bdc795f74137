"""What follows a 101: bytes, both ways, until one side hangs up. What they mean is the two ends' affair."""

import asyncio
from contextlib import suppress

from platform_api.http.upgrades import Upgrade
from platform_api.proxy.headers import Headers
from platform_api.proxy.limits import Lifeline
from platform_api.proxy.upstream import CHUNK, Upstream


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
