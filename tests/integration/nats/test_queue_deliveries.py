"""Calls as a worker is given them, on a real nats-server and with its own rights: none waits for who has left."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from gpu_platform.clock import now_utc
from gpu_platform.domain.invocations import InvocationRequest, accept
from gpu_platform.nats import deliveries
from gpu_platform.nats.connection import JetStream, core_of, open_client, open_queue
from gpu_platform.nats.credentials import Keyring
from gpu_platform.nats.deliveries import REQUEST_SECONDS, Delivered, take_call
from gpu_platform.nats.errors import QueueUnavailableError
from gpu_platform.nats.listing import read_batch
from gpu_platform.nats.permissions import SERVERS, QueueUser, inbox_prefix_of, sidecar_inbox_prefix
from gpu_platform.nats.records import Records
from gpu_platform.nats.streams import ensure_consumer, ensure_streams, remove_consumer
from gpu_platform.nats.subjects import QUEUE, consumer_name
from tests.support.fault_report import FaultReport
from tests.support.nats_server import QueueServer, queue_server
from tests.support.waiting import PATIENCE_SECONDS, eventually

TENANT, FUNCTION = "acme", "words"

ACK_WAIT = timedelta(minutes=5)
"""Far above what a test waits for: what comes sooner was given back."""


@dataclass(frozen=True)
class Ground:
    server: QueueServer
    js: JetStream
    first: JetStream
    second: JetStream
    """Connections of two workers."""

    async def send(self, invocation_id: str) -> None:
        request = InvocationRequest(function=FUNCTION, id=invocation_id)
        await Records(self.js, timedelta(hours=1)).enqueue(accept(TENANT, request, now_utc()))

    async def has_requests(self) -> bool:
        return bool((await self.js.consumer_info(QUEUE, consumer_name(TENANT, FUNCTION))).num_waiting)

    async def subscriptions(self) -> dict[str, int]:
        """How many the server holds, by the name of each connection."""
        user = QueueUser.SYSTEM
        async with open_client(self.server.access_of(user), "looking", inbox_prefix=inbox_prefix_of(user)) as client:
            answer = json.loads((await client.request(f"{SERVERS}.CONNZ", timeout=10)).data)
        return {each["name"]: each["subscriptions"] for each in answer["data"]["connections"]}

    async def restart(self, meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
        """Ends when everybody is connected again."""
        before = {each: core_of(each).stats["reconnects"] for each in self.connections}

        async def are_back() -> bool:
            cores = {each: core_of(each) for each in self.connections}
            return all(core.is_connected and core.stats["reconnects"] > before[each] for each, core in cores.items())

        async def are_gone() -> bool:
            return not any(core_of(each).is_connected for each in self.connections)

        self.server.kill()
        await eventually(are_gone)
        if meanwhile is not None:
            await meanwhile()
        await self.server.start()
        await eventually(are_back)

    @property
    def connections(self) -> tuple[JetStream, ...]:
        return self.js, self.first, self.second


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    user = QueueUser.FUNCTIONS
    async with (
        queue_server(tmp_path, keyring=Keyring.new(secrets.token_bytes)) as server,
        open_queue(server.access_of(user), "test", inbox_prefix=inbox_prefix_of(user)) as js,
        AsyncExitStack() as stack,
    ):
        await ensure_streams(js)
        await ensure_consumer(js, TENANT, FUNCTION, ACK_WAIT)
        access, inbox = server.sidecar_access(TENANT, FUNCTION), sidecar_inbox_prefix(TENANT, FUNCTION)
        first, second = [
            await stack.enter_async_context(open_queue(access, name, inbox_prefix=inbox))
            for name in ("first", "second")
        ]
        yield Ground(server, js, first, second)


async def taken_by(worker: JetStream) -> Delivered:
    return await eventually(lambda: take_call(worker, TENANT, FUNCTION))


async def test_a_call_is_given_to_one_who_asked_before_and_to_one_who_asks_later(ground: Ground) -> None:
    taking = asyncio.create_task(taken_by(ground.first))
    await eventually(ground.has_requests)
    await ground.send("one")
    await ground.send("two")

    one, two = await taking, await taken_by(ground.first)
    assert [one.invocation_id, two.invocation_id] == ["one", "two"]


@pytest.mark.parametrize("milliseconds", [2, pytest.param(20, marks=pytest.mark.faults)])
async def test_a_call_that_comes_when_a_request_ends_is_its_answer_or_anothers(
    ground: Ground, faults: FaultReport, milliseconds: int
) -> None:
    """Whichever of the two the server hears of first: it is given away once, and nobody waits for who has left."""
    for number in range(-milliseconds, milliseconds):
        taking = asyncio.create_task(take_call(ground.first, TENANT, FUNCTION))
        await asyncio.sleep(REQUEST_SECONDS + number / 1000)
        await ground.send(f"call{number}")
        taken = await taking or await taken_by(ground.second)
        assert (taken.invocation_id, taken.number) == (f"call{number}", 1)
        await taken.finish(ground.second)
        faults.hit("a call at the end of a request")
        faults.held("a call is given away once")


async def test_who_asks_while_nats_is_away_leaves_no_subscription_behind(ground: Ground) -> None:
    before = await ground.subscriptions()

    async def ask() -> None:
        for _ in range(5):
            with pytest.raises(QueueUnavailableError):
                await take_call(ground.first, TENANT, FUNCTION)
            with pytest.raises(QueueUnavailableError):
                await read_batch(ground.js, QUEUE, ">", 1, 10)

    await ground.restart(ask)

    after = await ground.subscriptions()
    assert {name: after[name] for name in ("first", "test")} == {name: before[name] for name in ("first", "test")}


async def test_who_waits_for_a_call_while_nats_starts_again_soon_asks_anew(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request was lost with its connection: no answer to it is worth the whole patience."""
    # The restart itself takes a while on a busy machine.
    monkeypatch.setattr(deliveries, "PATIENCE_SECONDS", PATIENCE_SECONDS)
    taking = asyncio.create_task(take_call(ground.first, TENANT, FUNCTION))
    await eventually(ground.has_requests)
    await ground.restart()
    # Who waits for the whole patience is told that NATS is away.
    assert await taking is None


async def test_who_is_refused_a_call_is_told_why(ground: Ground) -> None:
    consumer = consumer_name(TENANT, FUNCTION)
    config = (await ground.js.consumer_info(QUEUE, consumer)).config
    await remove_consumer(ground.js, TENANT, FUNCTION)
    await ground.js.add_consumer(QUEUE, config.evolve(max_waiting=1))

    asking = [take_call(ground.first, TENANT, FUNCTION) for _ in range(10)]
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert {str(answer) for answer in answers} == {"None", "NATS gives no calls: 409 Exceeded MaxWaiting"}


async def test_who_asks_a_consumer_that_is_gone_is_told_so(ground: Ground) -> None:
    await remove_consumer(ground.js, TENANT, FUNCTION)

    with pytest.raises(QueueUnavailableError):
        await take_call(ground.first, TENANT, FUNCTION)
