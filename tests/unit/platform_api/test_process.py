"""The listener that `process` opens: what its connections inherit."""

import asyncio
import socket

from platform_api.process import _listen


async def test_an_answer_does_not_wait_for_the_clients_acknowledgement() -> None:
    """Headers and body are two writes: with Nagle's algorithm the second one waits 40 ms for the first."""
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        accepted.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listener = _listen("127.0.0.1:0")
    async with await asyncio.start_server(note, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname()[:2])
        assert await asyncio.wait_for(accepted, 5)
        writer.close()
        await writer.wait_closed()
