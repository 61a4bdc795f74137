"""Whoever waits for a call to change is woken by a hint, and looks after a second at the latest all the same."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import nats.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from gpu_platform.adapters.queue.core import core_of
from gpu_platform.clock import wait_at_most
from gpu_platform.nats.errors import translated
from gpu_platform.nats.subjects import changed_subject, wake_subject

LOOK_SECONDS = 1.0

IS_OVER = b"over"
"""What a hint says of a call that has come to its end. It is not believed, but looked at."""

_Place = tuple[str, str | None]


class Waiter:
    def __init__(self) -> None:
        self._event = asyncio.Event()

    def wake(self) -> None:
        self._event.set()

    async def wait(self, seconds: float = LOOK_SECONDS) -> None:
        """Until there may be something new. A hint that came since the last time counts."""
        await wait_at_most(seconds, self._event)
        self._event.clear()


@asynccontextmanager
async def follow_wakes(js: JetStreamContext, wake: Callable[[str, str], None]) -> AsyncIterator[None]:
    """Told of tenant and function of every call that is queued, while the block runs."""

    async def take(message: Msg) -> None:
        tenant, function = message.subject.split(".")[-2:]
        wake(tenant, function)

    with translated():
        subscription = await core_of(js).subscribe(wake_subject("*", "*"), cb=take)
    try:
        yield
    finally:
        with suppress(nats.errors.Error):
            await subscription.unsubscribe()


class Hints:
    """One subscription for all who wait in this process."""

    def __init__(self) -> None:
        self._waiters: dict[_Place, set[Waiter]] = defaultdict(set)

    async def follow(self, js: JetStreamContext) -> None:
        """For as long as the connection lives."""
        with translated():
            await core_of(js).subscribe(changed_subject("*", "*", "*"), cb=self._take)

    @contextmanager
    def waiting(self, tenant: str, invocation_id: str | None = None) -> Iterator[Waiter]:
        """For the end of one call, or (without an id) for any change of any of the tenant's."""
        place, waiter = (tenant, invocation_id), Waiter()
        self._waiters[place].add(waiter)
        try:
            yield waiter
        finally:
            self._waiters[place].discard(waiter)
            if not self._waiters[place]:
                del self._waiters[place]

    async def _take(self, message: Msg) -> None:
        tenant, _, invocation_id = message.subject.split(".")[-3:]
        concerned: tuple[_Place, ...] = ((tenant, None),)
        if message.data == IS_OVER:
            concerned = (*concerned, (tenant, invocation_id))
        for place in concerned:
            for waiter in self._waiters.get(place, ()):
                waiter.wake()
