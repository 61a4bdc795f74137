"""Below JetStream: the connection itself, and messages that nobody keeps."""

import asyncio

from nats.aio.client import Client
from nats.js import JetStreamContext

from gpu_platform.nats.errors import QueueUnavailableError

LOOK_SECONDS = 2.0


def core_of(js: JetStreamContext) -> Client:
    """The connection itself. The library hands it out under no other name."""
    client: Client = js._nc  # noqa: SLF001
    return client


def connected_core_of(js: JetStreamContext) -> Client:
    """For whoever subscribes for a moment. While the client connects again, it keeps a subscription for the server but
    not the end of it: each would stay there for as long as the next connection."""
    client = core_of(js)
    if not client.is_connected:
        raise QueueUnavailableError("NATS is away")
    return client


def prefix_of(js: JetStreamContext) -> str:
    """Under which it asks JetStream: another one where the streams are of another account."""
    prefix: str = js._prefix  # noqa: SLF001
    return prefix


async def wait_until_closed(js: JetStreamContext) -> None:
    """The client itself connects again. It gives up only where it is not let in any more."""
    while not core_of(js).is_closed:  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(LOOK_SECONDS)
