"""Calls as the queue hands them out: one at a time, kept while they are worked on, given back or done."""

import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import nats.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from gpu_platform.adapters.queue.errors import QueueUnavailableError, translated
from gpu_platform.domain.queue_subjects import QUEUE, consumer_name

log = logging.getLogger(__name__)

FETCH_SECONDS = 5.0
"""A fetch is never cancelled, but waited for: a cancelled one may have been given a call already."""

ACK_SECONDS = 5.0


@dataclass(frozen=True)
class Delivered:
    """One call, handed out for the `number`th time."""

    message: Msg

    @property
    def invocation_id(self) -> str:
        return self.message.subject.rpartition(".")[2]

    @property
    def queued_at(self) -> datetime:
        return self.message.metadata.timestamp

    @property
    def number(self) -> int:
        return self.message.metadata.num_delivered

    async def keep(self) -> None:
        """Say that it is being worked on. What is not heard now is said again."""
        with suppress(nats.errors.Error):
            await self.message.in_progress()

    async def finish(self) -> None:
        """Take it from the queue. If that is not heard, it comes again, and is over then."""
        with suppress(TimeoutError, nats.errors.Error):
            await self.message.ack_sync(timeout=ACK_SECONDS)

    async def give_back(self, delay_seconds: float) -> None:
        """For somebody else, or for later."""
        with translated():
            await self.message.nak(delay=delay_seconds)

    async def drop(self) -> None:
        with translated():
            await self.message.term()


class Pull:
    """One slot of one worker."""

    def __init__(self, subscription: JetStreamContext.PullSubscription) -> None:
        self._subscription = subscription

    async def take(self) -> Delivered | None:
        """The next call; None when there was none for a while."""
        try:
            messages = await self._subscription.fetch(1, timeout=FETCH_SECONDS)
        except TimeoutError:
            return None
        except nats.errors.Error as error:
            raise QueueUnavailableError(f"NATS does not answer: {type(error).__name__}") from error
        return Delivered(messages[0]) if messages else None


async def open_pull(js: JetStreamContext, tenant: str, function: str) -> Pull:
    with translated():
        return Pull(await js.pull_subscribe_bind(durable=consumer_name(tenant, function), stream=QUEUE))
