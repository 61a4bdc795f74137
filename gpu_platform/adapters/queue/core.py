"""Below JetStream: messages that nobody keeps."""

from nats.aio.client import Client
from nats.js import JetStreamContext


def core_of(js: JetStreamContext) -> Client:
    """The connection itself. The library hands it out under no other name."""
    client: Client = js._nc  # noqa: SLF001
    return client
