"""A question asked at the last moment before a request leaves the process.

A request waits before it is sent: for its turn, for a connection, for a TLS handshake. Whoever checked something
before the call (`guarded` does) would otherwise send what was right some time ago.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import Connection

from gpu_platform.adapters.kube.leadership import NotLeaderError

_question: ContextVar[Callable[[], None] | None] = ContextVar("last_look", default=None)


@contextmanager
def last_look(question: Callable[[], None]) -> Iterator[None]:
    """Ask this right before each request of the block goes onto its connection; NotLeaderError means no."""
    token = _question.set(question)
    try:
        yield
    finally:
        _question.reset(token)


class LastLookRequest(aiohttp.ClientRequest):
    """For a session's `request_class`. From the question to the socket there is nothing that waits."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """A request without a body leaves here. One with a body only prepares its headers."""
        if question := _question.get():
            question()
        return await super().send(conn)

    async def write_bytes(
        self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
    ) -> None:
        """Headers and body leave here, in a task of their own, which the event loop may start much later."""
        if question := _question.get():
            try:
                question()
            except NotLeaderError as refusal:
                # Whoever waits for the answer is told, as of any other failure to send.
                if conn.protocol is not None:
                    conn.protocol.set_exception(refusal)
                return
        await super().write_bytes(writer, conn, content_length)
