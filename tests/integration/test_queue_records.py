"""Records of invocations on a real nats-server: one per id, one end, whoever writes at once and whatever restarts."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpu_platform.adapters.queue.connection import JetStream, open_queue
from gpu_platform.adapters.queue.errors import OutdatedError, QueueUnavailableError, TooLargeError
from gpu_platform.adapters.queue.layout import ensure_consumer, ensure_streams, remove_consumer
from gpu_platform.adapters.queue.records import Records
from gpu_platform.domain.invocations import (
    Invocation,
    InvocationRequest,
    InvocationResult,
    InvocationState,
    accept,
    answer,
    begin,
    cancel,
)
from tests.integration.queue_server import QueueServer, queue_server
from tests.waiting import eventually

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
CROWD = 20


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[QueueServer]:
    async with queue_server(tmp_path) as server:
        yield server


@pytest.fixture
async def js(server: QueueServer) -> AsyncIterator[JetStream]:
    async with open_queue(server.url, "test") as context:
        await ensure_streams(context)
        yield context


@pytest.fixture
def records(js: JetStream) -> Records:
    return Records(js, timedelta(hours=1))


def call(invocation_id: str = "call-1", function: str = "resize", tenant: str = "acme", payload: int = 1) -> Invocation:
    return accept(tenant, InvocationRequest(function=function, id=invocation_id, payload=payload), NOW)


async def test_the_streams_may_be_made_twice(js: JetStream) -> None:
    await ensure_streams(js)


async def test_of_many_who_accept_one_id_one_does_and_all_see_the_same(records: Records) -> None:
    calls = [call(function=f"function-{number % 3}", payload=number) for number in range(CROWD)]
    accepted = await asyncio.gather(*map(records.accept, calls))

    assert sum(each.is_new for each in accepted) == 1
    assert len({each.seen.call.payload for each in accepted}) == 1


async def test_another_tenants_id_is_another_one(records: Records) -> None:
    assert (await records.accept(call())).is_new
    assert (await records.accept(call(tenant="umbrella"))).is_new
    assert not (await records.accept(call())).is_new


async def test_of_two_ends_the_first_stays(records: Records) -> None:
    seen = (await records.accept(call())).seen
    running = await records.change(seen, begin(seen.call, "worker-1", 1, NOW))
    ends = [answer(running.call, InvocationResult(body=number), NOW) for number in range(CROWD)]
    ends.append(cancel(cancel(running.call, NOW), NOW))
    written = await asyncio.gather(*(records.change(running, end) for end in ends), return_exceptions=True)

    refused = [each for each in written if isinstance(each, OutdatedError)]
    assert len(refused) == len(ends) - 1
    [kept] = [each for each in written if not isinstance(each, BaseException)]
    assert await records.find("acme", "call-1") == kept
    with pytest.raises(OutdatedError):
        await records.change(kept, kept.call)


async def test_what_does_not_fit_is_refused_before_it_is_sent(records: Records) -> None:
    request = InvocationRequest(function="resize", id="large", payload="x" * 1_000_000)
    with pytest.raises(TooLargeError, match="there is room for"):
        await records.accept(accept("acme", request, NOW))
    assert await records.find("acme", "large") is None


async def test_a_record_that_is_over_goes_by_itself(js: JetStream) -> None:
    records = Records(js, timedelta(seconds=1))
    seen = (await records.accept(call())).seen
    await records.change(seen, cancel(seen.call, NOW))

    async def is_gone() -> bool:
        return await records.find("acme", "call-1") is None

    await eventually(is_gone, within=30)
    assert (await records.accept(call())).is_new


async def test_what_was_accepted_is_there_after_the_server_was_killed(server: QueueServer, records: Records) -> None:
    await records.accept(call())
    server.kill()
    with pytest.raises(QueueUnavailableError):
        await records.find("acme", "call-1")
    await server.start()

    async def is_back() -> bool:
        try:
            return await records.find("acme", "call-1") is not None
        except QueueUnavailableError:
            return False

    await eventually(is_back)
    again = await records.accept(call(payload=2))
    assert (again.is_new, again.seen.call.payload) == (False, 1)
    assert again.seen.call.state is InvocationState.QUEUED


async def test_a_functions_calls_wait_for_its_consumer_and_go_with_it(js: JetStream, records: Records) -> None:
    for name in ("resize", "other"):
        await ensure_consumer(js, "acme", name, timedelta(seconds=10), 3)
        await ensure_consumer(js, "acme", name, timedelta(seconds=10), 3)
        await records.enqueue(call(function=name))
    await remove_consumer(js, "acme", "resize")
    await remove_consumer(js, "acme", "resize")

    assert (await js.stream_info("SERVERLESS_INVOKE")).state.messages == 1
    info = await js.consumer_info("SERVERLESS_INVOKE", "acme_other")
    assert (info.num_pending, info.config.max_deliver) == (1, 5)
