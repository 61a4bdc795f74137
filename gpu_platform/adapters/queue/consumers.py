"""Which functions have a consumer, and what waits for each."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nats.js import JetStreamContext
from nats.js.api import ConsumerInfo
from nats.js.errors import NotFoundError

from gpu_platform.nats.errors import QueueUnavailableError, translated
from gpu_platform.nats.subjects import QUEUE, consumer_name, parse_consumer_name


@dataclass(frozen=True)
class Backlog:
    waiting: int
    running: int
    """Given to a worker and not acknowledged."""

    given: int
    """How often a call was given to a worker, ever."""

    @property
    def calls(self) -> int:
        return self.waiting + self.running


async def list_consumers(js: JetStreamContext) -> frozenset[tuple[str, str]]:
    """Tenant and function of each. What somebody made for another purpose is left alone."""
    return frozenset(await read_backlogs(js))


async def read_backlogs(js: JetStreamContext) -> dict[tuple[str, str], Backlog]:
    """By tenant and function."""
    found: dict[tuple[str, str], Backlog] = {}
    offset = 0
    while True:
        with translated(), stream_needed():
            page = await js.consumers_info(QUEUE, offset)
        if not page:
            return found
        found |= {key: _backlog_of(info) for info in page if (key := parse_consumer_name(info.name)) is not None}
        offset += len(page)


async def read_backlog(js: JetStreamContext, tenant: str, function: str) -> Backlog | None:
    """None: it has no consumer."""
    with translated():
        try:
            return _backlog_of(await js.consumer_info(QUEUE, consumer_name(tenant, function)))
        except NotFoundError:
            return None


def _backlog_of(info: ConsumerInfo) -> Backlog:
    given = info.delivered.consumer_seq if info.delivered else 0
    return Backlog(info.num_pending or 0, info.num_ack_pending or 0, given)


@contextmanager
def stream_needed() -> Iterator[None]:
    """A queue that is not there (yet, or any more) is one that does not answer."""
    try:
        yield
    except NotFoundError as error:
        raise QueueUnavailableError(f"NATS has no stream {QUEUE}") from error
