"""The reconciler's way to NATS in virtual time: how often it looks at the queue, and when it says that NATS is away."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from gpu_platform.nats.connection import JetStream, QueueAccess
from gpu_platform.nats.errors import QueueUnavailableError
from gpu_platform.nats.streams import Backlog
from reconciler.functions import queue_link, scaling
from reconciler.functions.queue_link import CONNECTING_SECONDS, QueueLink, StillConnectingError
from reconciler.functions.scaling import GATHER_SECONDS, SWEEP_SECONDS, Scaler
from tests.support.builders import NOW
from tests.support.virtual_time import now, run_in_virtual_time

CALLS = 1_000
BURST_SECONDS = 2.0
FIRST_AT = SWEEP_SECONDS / 2


class Queue:
    """Has all the calls that came so far, and tells of each."""

    def __init__(self) -> None:
        self.calls = 0
        self.looks: list[float] = []
        self.wake: Callable[[str, str], None] = lambda *_: None

    @asynccontextmanager
    async def follow_wakes(self, _: JetStream, wake: Callable[[str, str], None]) -> AsyncIterator[None]:
        self.wake = wake
        yield

    async def read_backlog(self, *_: Any) -> Backlog:
        self.looks.append(now())
        return Backlog(self.calls, 0, 0)

    async def read_backlogs(self, _: JetStream) -> dict[tuple[str, str], Backlog]:
        return {("acme", "resize"): await self.read_backlog()}

    async def receive_burst(self) -> None:
        await asyncio.sleep(FIRST_AT)
        for _ in range(CALLS):
            self.calls += 1
            self.wake("acme", "resize")
            await asyncio.sleep(BURST_SECONDS / CALLS)


def test_a_burst_of_calls_is_few_looks_and_the_first_call_is_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue()
    for name in ("follow_wakes", "read_backlog", "read_backlogs"):
        monkeypatch.setattr(scaling, name, getattr(queue, name))

    async def follow() -> None:
        following = asyncio.create_task(Scaler(lambda: NOW).follow(cast(JetStream, None)))
        await queue.receive_burst()
        following.cancel()
        await asyncio.wait({following})

    run_in_virtual_time(follow())

    seconds = BURST_SECONDS + FIRST_AT
    assert queue.looks[:2] == [0, FIRST_AT]
    assert len(queue.looks) <= seconds / GATHER_SECONDS + seconds / SWEEP_SECONDS + 2


def test_at_the_beginning_it_says_that_it_only_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def wait_for_server(*_: Any, **__: Any) -> AsyncIterator[None]:
        await asyncio.sleep(3_600)
        yield

    monkeypatch.setattr(queue_link, "open_queue", wait_for_server)

    async def ask(link: QueueLink) -> type[Exception]:
        with pytest.raises(QueueUnavailableError) as caught:
            await link.list_consumers()
        return caught.type

    async def begin() -> None:
        link = QueueLink(QueueAccess("nats://nats.example.com:4222"), None, 1, "test")
        running = asyncio.create_task(link.run())
        await asyncio.sleep(CONNECTING_SECONDS - 0.1)
        assert await ask(link) is StillConnectingError
        await asyncio.sleep(0.2)
        assert await ask(link) is QueueUnavailableError
        running.cancel()
        await asyncio.wait({running})

    run_in_virtual_time(begin())
