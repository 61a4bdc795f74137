"""How long a worker waits for an invocation whose request was lost, in virtual time."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import nats.errors
import pytest
from nats.aio.msg import Msg

from gpu_platform.nats import deliveries
from gpu_platform.nats.connection import JetStream
from gpu_platform.nats.deliveries import REQUEST_SECONDS, take_call
from tests.support.virtual_time import now, run_in_virtual_time


class Core:
    """Loses its connection with the request, and is connected again soon."""

    def __init__(self) -> None:
        self.stats = {"reconnects": 0}

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, _: str, **__: Any) -> "Core":
        return self

    async def unsubscribe(self) -> None:
        pass

    async def publish(self, *_: Any, **__: Any) -> None:
        asyncio.get_running_loop().call_later(0.2, self.reconnect)

    def reconnect(self) -> None:
        self.stats["reconnects"] += 1

    async def next_msg(self, seconds: float) -> Msg:
        await asyncio.sleep(seconds)
        raise nats.errors.TimeoutError


def test_who_lost_its_request_with_the_connection_asks_anew_after_the_time_of_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = Core()
    monkeypatch.setattr(deliveries, "connected_core_of", lambda _: core)
    monkeypatch.setattr(deliveries, "prefix_of", lambda _: "$JS.API")

    async def take() -> float:
        assert await take_call(cast(JetStream, SimpleNamespace()), "acme", "words") is None
        return now()

    assert run_in_virtual_time(take()) == REQUEST_SECONDS
