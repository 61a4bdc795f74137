"""Calls as the queue hands them out: one at a time, kept while they are worked on, given back or done."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js.api import Header, StatusCode

from gpu_platform.nats.connection import connected_core_of, core_of, prefix_of, subscribed
from gpu_platform.nats.errors import QueueUnavailableError, translated
from gpu_platform.nats.subjects import QUEUE, consumer_name

REQUEST_SECONDS = 0.5
"""How long the server keeps a request for a call; then it says that none came. A worker that is to end waits for that.
It cannot take a request back: the server drops one that nobody listens to, but a call that it has chosen for it just
before waits until the worker is taken for dead. 6 of 700 did, in a test that tried for it."""

PATIENCE_SECONDS = REQUEST_SECONDS + 5.0
"""For the answer, on a connection that seems to live."""

NANOSECONDS = 1_000_000_000

REQUEST = json.dumps({"batch": 1, "expires": int(REQUEST_SECONDS * NANOSECONDS)}).encode()

NONE_CAME = (StatusCode.REQUEST_TIMEOUT, StatusCode.NO_MESSAGES)

ACK_SECONDS = 5.0

LONGEST_SILENCE_SECONDS = 1.0
"""Between two signs of life. A third of the shortest time to acknowledge: a function may be given that one while its
workers still go by a longer one."""


@dataclass(frozen=True)
class Delivered:
    """One call, handed out for the `number`th time.

    What is said of it is said over the connection that there is now. The one by which it came may be closed for good,
    and it is what the message itself would use."""

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

    async def keep(self, js: JetStreamContext) -> None:
        """Say that it is being worked on. What is not heard now is said again."""
        with suppress(nats.errors.Error):
            await core_of(js).publish(self.message.reply, Msg.Ack.Progress)

    async def finish(self, js: JetStreamContext) -> None:
        """Take it from the queue. If that is not heard, it comes again, and is over then."""
        with suppress(TimeoutError, nats.errors.Error):
            await core_of(js).request(self.message.reply, timeout=ACK_SECONDS)

    async def give_back(self, js: JetStreamContext, delay_seconds: float) -> None:
        """For somebody else, or for later."""
        delay = json.dumps({"delay": int(delay_seconds * NANOSECONDS)}).encode()
        with translated():
            await core_of(js).publish(self.message.reply, Msg.Ack.Nak + b" " + delay)

    async def drop(self, js: JetStreamContext) -> None:
        with translated():
            await core_of(js).publish(self.message.reply, Msg.Ack.Term)


@asynccontextmanager
async def kept(
    delivered: Delivered, js_now: Callable[[], JetStreamContext], ack_wait: timedelta
) -> AsyncIterator[None]:
    """Tells the queue again and again that the call is being worked on, over the connection that there is then."""

    async def tell() -> None:
        while True:
            await asyncio.sleep(min(ack_wait.total_seconds() / 3, LONGEST_SILENCE_SECONDS))
            await delivered.keep(js_now())

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()
        with suppress(asyncio.CancelledError):
            await telling


async def take_call(js: JetStreamContext, tenant: str, function: str) -> Delivered | None:
    """The next call; None when none came. Not to be cancelled: the answer may be a call.

    Not the client's `fetch`: that one gives a request up before the server does, and keeps its inbox, for which the
    server remembers every request that was ever made.
    """
    core = connected_core_of(js)
    inbox = core.new_inbox()
    async with subscribed(core, inbox) as subscription:
        with translated():
            place = f"{prefix_of(js)}.CONSUMER.MSG.NEXT.{QUEUE}.{consumer_name(tenant, function)}"
            reconnects = core.stats["reconnects"]
            await core.publish(place, REQUEST, reply=inbox)
            message = await _wait_for_answer(subscription, lambda: core.stats["reconnects"] != reconnects)
    return None if message is None else _read_answer(message)


async def _wait_for_answer(subscription: Subscription, is_lost: Callable[[], bool]) -> Msg | None:
    """None: the request was lost with its connection. It may have been answered just before, so the time for which the
    server keeps one is waited all the same."""
    gives_up_at = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await subscription.next_msg(REQUEST_SECONDS)
        except nats.errors.TimeoutError:
            if is_lost():
                return None
            if time.monotonic() >= gives_up_at:
                raise


def _read_answer(message: Msg) -> Delivered | None:
    headers = message.headers or {}
    status = headers.get(Header.STATUS)
    if status is None:
        return Delivered(message)
    if status in NONE_CAME:
        return None
    raise QueueUnavailableError(f"NATS gives no calls: {status} {headers.get(Header.DESCRIPTION, '')}".rstrip())
