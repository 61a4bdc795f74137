"""Records of invocations on a real nats-server: one per id, one end, whoever writes at once and whatever restarts."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from nats.js.errors import APIError

from gpu_platform.domain.invocations import (
    Invocation,
    InvocationRequest,
    InvocationResult,
    InvocationState,
    accept,
    answer,
    begin,
    cancel,
    expire,
    without_contents,
)
from gpu_platform.nats.bodies import Bodies, MissingBodyError
from gpu_platform.nats.connection import JetStream, QueueAccess, core_of, open_queue
from gpu_platform.nats.deliveries import take_call
from gpu_platform.nats.errors import OutdatedError, QueueUnavailableError, TooLargeError, UnreadableError, translated
from gpu_platform.nats.listing import EVERYBODY, Listing
from gpu_platform.nats.records import ROOM_TO_END, Hints, Records
from gpu_platform.nats.streams import (
    LARGEST_RECORD,
    ensure_consumer,
    ensure_streams,
    find_message,
    read_backlog,
    remove_consumer,
)
from gpu_platform.nats.subjects import BODIES, CHUNK_BYTES, QUEUE, body_subject, queue_subject, record_subject
from tests.support.nats_server import QueueServer, queue_server, reach_server
from tests.support.waiting import eventually

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
CROWD = 20


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[QueueServer]:
    async with queue_server(tmp_path) as server:
        yield server


@pytest.fixture
async def js(server: QueueServer) -> AsyncIterator[JetStream]:
    async with open_queue(QueueAccess(server.url), "test") as context:
        await ensure_streams(context)
        yield context


@pytest.fixture
def records(js: JetStream) -> Records:
    return Records(js, timedelta(hours=1))


def call(invocation_id: str = "call-1", function: str = "resize", tenant: str = "acme", payload: int = 1) -> Invocation:
    return accept(tenant, InvocationRequest(function=function, id=invocation_id, payload=payload), NOW)


async def is_queued(js: JetStream, one: Invocation) -> bool:
    return await find_message(js, QUEUE, queue_subject(one.tenant, one.function, one.id)) is not None


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
    running = await records.change(seen, begin(seen.call, "worker-1", NOW))
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


async def test_what_is_accepted_leaves_room_for_its_end(records: Records) -> None:
    request = InvocationRequest(function="resize", id="large", payload="x" * (LARGEST_RECORD - ROOM_TO_END))
    with pytest.raises(TooLargeError):
        await records.accept(accept("acme", request, NOW))

    fits = InvocationRequest(function="resize", id="fits", payload="x" * (LARGEST_RECORD - ROOM_TO_END - 2_000))
    seen = (await records.accept(accept("acme", fits, NOW))).seen
    room = ROOM_TO_END - 2_000
    await records.change(seen, answer(begin(seen.call, "worker-1", NOW), InvocationResult(body="y" * room), NOW))


async def test_the_stream_takes_the_largest_record_with_its_headers_and_refuses_a_larger_one(js: JetStream) -> None:
    subject = record_subject("acme", "large", "resize")
    guard = {"Nats-Expected-Last-Subject-Sequence": "0"}
    await js.publish(subject, b"x" * LARGEST_RECORD, headers=guard)
    with pytest.raises(TooLargeError), translated():
        await js.publish(subject, b"x" * (LARGEST_RECORD + 5_000))


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("body", [nested(250), nested(3_000), "\ud800"], ids=["deep", "deeper", "half a character"])
async def test_what_nobody_could_read_again_is_not_written(records: Records, body: Any) -> None:
    seen = (await records.accept(call())).seen
    running = await records.change(seen, begin(seen.call, "worker-1", NOW))
    with pytest.raises(UnreadableError, match="could not be read again"):
        await records.change(running, answer(running.call, InvocationResult(body=body), NOW))

    assert await records.find("acme", "call-1") == running


def strange_records() -> dict[str, bytes]:
    record = call("strange").to_json()
    return {
        "empty": b"{}",
        "no JSON": b"\xff",
        "deep": json.dumps(record | {"payload": nested(250)}).encode(),
        "half a character": json.dumps(record | {"payload": "\ud800"}).encode(),
        "of another tenant": json.dumps(record | {"tenant": "umbrella"}).encode(),
        "of another call": json.dumps(record | {"id": "call-1"}).encode(),
        "of another function": json.dumps(record | {"function": "other"}).encode(),
        "without a time zone": json.dumps(record | {"expiresAt": "2026-11-16T12:00:00"}).encode(),
    }


@pytest.mark.parametrize("data", strange_records().values(), ids=strange_records().keys())
async def test_what_is_no_record_of_its_place_is_as_good_as_none(js: JetStream, records: Records, data: bytes) -> None:
    await js.publish(record_subject("acme", "strange", "resize"), data)
    await records.accept(call())

    assert await records.find("acme", "strange") is None
    assert await records.find("acme", "strange", "resize") is None
    assert await records.find("acme", "strange", "resize", direct=True) is None
    page = await Listing(js).read_page("acme", 0)
    assert ([seen.call.id for seen in page.seen], page.scanned, page.is_last) == (["call-1"], 2, True)


async def test_a_record_of_another_function_does_not_hide_the_one_that_is_asked_for(
    js: JetStream, records: Records
) -> None:
    seen = (await records.accept(call())).seen
    forged = json.dumps(call(function="other", payload=2).to_json()).encode()
    await js.publish(record_subject("acme", "call-1", "other"), forged)

    assert await records.find("acme", "call-1", "resize") == seen
    assert (await records.accept(call())).seen == seen


@pytest.mark.parametrize("code", [10071, 10164])
def test_a_write_that_is_overtaken_is_outdated(code: int) -> None:
    with pytest.raises(OutdatedError), translated():
        raise APIError(code=400, err_code=code, description="wrong last sequence")


async def test_a_record_that_is_over_goes_by_itself(js: JetStream) -> None:
    records = Records(js, timedelta(seconds=1))
    seen = (await records.accept(call())).seen
    await records.change(seen, cancel(seen.call, NOW))

    async def is_gone() -> bool:
        return await records.find("acme", "call-1") is None

    await eventually(is_gone)
    assert (await records.accept(call())).is_new


async def test_what_was_accepted_is_there_after_the_server_was_killed(
    server: QueueServer, js: JetStream, records: Records
) -> None:
    await records.accept(call())
    server.kill()

    async def is_gone() -> bool:
        return not core_of(js).is_connected

    await eventually(is_gone)
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
        await ensure_consumer(js, "acme", name, timedelta(seconds=10))
        await ensure_consumer(js, "acme", name, timedelta(seconds=10))
        await records.enqueue(call(function=name))
    await remove_consumer(js, "acme", "resize")
    await remove_consumer(js, "acme", "resize")

    assert (await js.stream_info("SERVERLESS_INVOKE")).state.messages == 1
    info = await js.consumer_info("SERVERLESS_INVOKE", "acme_other")
    assert (info.num_pending, info.config.max_deliver) == (1, -1)


async def test_a_call_is_in_the_queue_once_however_often_it_is_queued(js: JetStream, records: Records) -> None:
    assert not await is_queued(js, call())
    await asyncio.gather(*(records.enqueue(call()) for _ in range(CROWD)))
    assert await is_queued(js, call())
    assert [each.invocation_id for each in await Listing(js).read_queue()] == ["call-1"]

    await records.unqueue(call())
    assert not await is_queued(js, call())
    await records.enqueue(call())
    [again] = await Listing(js).read_queue()
    assert (again.tenant, again.function) == ("acme", "resize")
    await Listing(js).remove_queued(again)
    await Listing(js).remove_queued(again)
    assert not await is_queued(js, call())


async def test_a_record_is_found_by_its_function_too(records: Records) -> None:
    seen = (await records.accept(call())).seen

    for direct in (False, True):
        assert await records.find("acme", "call-1", "resize", direct=direct) == seen
        assert await records.find("acme", "call-1", "other", direct=direct) is None
        assert await records.find("umbrella", "call-1", "resize", direct=direct) is None


async def test_records_are_read_page_by_page_in_the_order_of_their_last_change(js: JetStream, records: Records) -> None:
    first = (await records.accept(call("call-0", "other"))).seen
    for number in range(1, 7):
        await records.accept(call(f"call-{number}", "resize" if number % 2 else "other"))
    await records.accept(call("call-1", tenant="umbrella"))
    await records.change(first, cancel(first.call, NOW))
    listing = Listing(js)

    page = await listing.read_page("acme", 0, limit=4)
    rest = await listing.read_page("acme", page.next_sequence, limit=4)
    assert (page.is_last, rest.is_last) == (False, True)
    assert [seen.call.id for seen in (*page.seen, *rest.seen)] == [f"call-{n}" for n in (1, 2, 3, 4, 5, 6, 0)]
    found = await records.find("acme", "call-0")
    assert found is not None
    assert (without_contents(found.call), found.revision) == (rest.seen[-1].call, rest.seen[-1].revision)

    of_one = await listing.read_page("acme", 0, function="resize")
    assert [seen.call.id for seen in of_one.seen] == ["call-1", "call-3", "call-5"]
    assert len((await listing.read_page(EVERYBODY, 0)).seen) == 8
    nobody = await listing.read_page("nobody", 0)
    assert (nobody.seen, nobody.is_last, nobody.next_sequence) == ((), True, 0)

    end = await listing.find_end()
    assert end == rest.next_sequence
    assert (await listing.read_page("acme", end)).seen == ()


async def test_what_waits_and_what_runs_is_counted(js: JetStream, records: Records) -> None:
    assert await read_backlog(js, "acme", "resize") is None
    await ensure_consumer(js, "acme", "resize", timedelta(seconds=10))
    for number in range(3):
        await records.enqueue(call(f"call-{number}"))
    await take_call(js, "acme", "resize")

    backlog = await read_backlog(js, "acme", "resize")
    assert backlog is not None
    assert (backlog.waiting, backlog.running) == (2, 1)


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES - 1])
async def test_a_body_is_read_as_it_was_stored(js: JetStream, size: int) -> None:
    bodies = Bodies(js, timedelta(hours=1))
    content = random.Random(size).randbytes(size)
    first = await bodies.put_result(call(), content)
    await bodies.put_result(call(), b"of another worker")

    assert first == await bodies.put_result(call(), content)
    assert await bodies.get_result(call(), first) == content


async def test_another_ones_body_is_missing(js: JetStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_platform.nats.bodies.MISSING_SECONDS", 0.2)
    bodies = Bodies(js, timedelta(hours=1))
    first = await bodies.put_result(call(), b"content")

    with pytest.raises(MissingBodyError):
        await bodies.get_payload(call(), first)
    with pytest.raises(MissingBodyError):
        await bodies.get_result(call("call-2"), first)


async def test_a_chunk_that_comes_a_moment_later_is_waited_for(js: JetStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_platform.nats.bodies.MISSING_SECONDS", 60.0)
    look, looked = Bodies._find_chunk, asyncio.Event()

    async def note_look(self: Bodies, subject: str) -> bytes | None:
        found = await look(self, subject)
        looked.set()
        return found

    monkeypatch.setattr(Bodies, "_find_chunk", note_look)
    bodies = Bodies(js, timedelta(hours=1))
    reference = await bodies.put_result(call(), b"content")
    await js.purge_stream(BODIES)
    reading = asyncio.create_task(bodies.get_result(call(), reference))
    await looked.wait()
    assert not reading.done()
    await js.publish(body_subject("acme", "resize", "call-1", "result", f"{reference.digest}-0"), b"content")

    assert await reading == b"content"


async def test_lists_leave_out_what_may_be_large(js: JetStream, records: Records) -> None:
    seen = (await records.accept(call())).seen
    result = InvocationResult(body="y", headers={"a": "b"})
    await records.change(seen, answer(begin(seen.call, "worker-1", NOW), result, NOW))

    [listed] = (await Listing(js).read_page("acme", 0)).seen
    assert listed.call.state is InvocationState.SUCCEEDED
    assert (listed.call.payload, listed.call.result) == (None, InvocationResult())


async def test_whoever_waits_is_woken_by_a_write_and_for_one_call_by_its_end(
    server: QueueServer, js: JetStream
) -> None:
    hints = Hints()
    await hints.follow(js)
    await reach_server(core_of(js))
    async with open_queue(QueueAccess(server.url), "other") as other:
        records = Records(other, timedelta(hours=1))
        with hints.waiting("acme", "call-1") as one, hints.waiting("acme") as any_of, hints.waiting("umbrella") as no:
            for_one, for_any, for_nobody = (asyncio.create_task(each.wait(600)) for each in (one, any_of, no))
            accepted = await records.accept(call())
            await for_any
            assert not for_one.done()
            await records.change(accepted.seen, expire(accepted.seen.call, NOW))
            await for_one
            # Hints come one after the other: every other subscriber has received it, too.
            await reach_server(core_of(js))
            assert not for_nobody.done()
            for_nobody.cancel()


async def test_without_its_streams_nats_is_as_good_as_away(server: QueueServer) -> None:
    async with open_queue(QueueAccess(server.url), "test") as js:
        records = Records(js, timedelta(hours=1))
        questions = (
            records.accept(call()),
            records.find("acme", "call-1"),
            records.find("acme", "call-1", "resize"),
            records.find("acme", "call-1", "resize", direct=True),
            is_queued(js, call()),
            Listing(js).read_page("acme", 0),
            Listing(js).read_queue(),
            Listing(js).find_end(),
        )
        for question in questions:
            with pytest.raises(QueueUnavailableError):
                await question
