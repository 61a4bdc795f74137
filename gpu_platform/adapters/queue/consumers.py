"""Which functions have a consumer."""

from collections.abc import Iterator
from contextlib import contextmanager

from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from gpu_platform.adapters.queue.errors import QueueUnavailableError, translated
from gpu_platform.domain.queue_subjects import QUEUE, parse_consumer_name


async def list_consumers(js: JetStreamContext) -> frozenset[tuple[str, str]]:
    """Tenant and function of each. What somebody made for another purpose is left alone."""
    found: set[tuple[str, str]] = set()
    offset = 0
    while True:
        with translated(), stream_needed():
            page = await js.consumers_info(QUEUE, offset)
        found |= {key for info in page if (key := parse_consumer_name(info.name)) is not None}
        if not page:
            return frozenset(found)
        offset += len(page)


@contextmanager
def stream_needed() -> Iterator[None]:
    """A queue that is not there (yet, or any more) is one that does not answer."""
    try:
        yield
    except NotFoundError as error:
        raise QueueUnavailableError(f"NATS has no stream {QUEUE}") from error
