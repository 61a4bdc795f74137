"""A connection that waits for its server for as long as it takes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats
from nats.js import JetStreamContext

from gpu_platform.adapters.queue.errors import translated

CONNECT_SECONDS = 2
PING_SECONDS = 10
"""A server that is there but silent is noticed after two of these."""

ANSWER_SECONDS = 5
RECONNECT_SECONDS = 0.25
FOR_EVER = -1
NO_BUFFER = -1
"""What is sent while the server is away fails at once: a buffer would make it look as if it had arrived."""


JetStream = JetStreamContext


@asynccontextmanager
async def open_queue(url: str, name: str) -> AsyncIterator[JetStream]:
    """QueueUnavailableError: there is no server at this address now."""
    with translated():
        client = await nats.connect(
            url,
            name=name,
            connect_timeout=CONNECT_SECONDS,
            ping_interval=PING_SECONDS,
            max_outstanding_pings=2,
            reconnect_time_wait=RECONNECT_SECONDS,
            max_reconnect_attempts=FOR_EVER,
            allow_reconnect=True,
            pending_size=NO_BUFFER,
        )
    try:
        yield client.jetstream(timeout=ANSWER_SECONDS)
    finally:
        await client.close()
