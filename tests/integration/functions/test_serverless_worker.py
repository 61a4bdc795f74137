"""Calls on real worker processes and a real nats-server: run, answered, refused, ended."""

import json
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gpu_platform.clock import now_utc
from gpu_platform.domain.invocations import BodyReference, InvocationRequest, InvocationState, accept, cancel
from gpu_platform.nats.streams import LARGEST_RECORD
from gpu_platform.nats.subjects import RECORDS
from tests.support.waiting import eventually
from tests.support.worker_ground import (
    ACK_SECONDS,
    ATTEMPTS,
    FUNCTION,
    WorkerGround,
    open_worker_ground,
    says_queue_away,
)


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[WorkerGround]:
    async with open_worker_ground(tmp_path) as ground:
        yield ground


async def test_a_call_is_run_answered_and_taken_from_the_queue_and_its_worker_ends_when_told_to(
    ground: WorkerGround,
) -> None:
    await ground.send("one")
    await ground.send("wrong", text=None)
    await ground.send("too-large", repeat=4_000_000)
    async with ground.framework(), ground.sidecar() as sidecar:
        one, wrong, large = [await ground.ends(name) for name in ("one", "wrong", "too-large")]
        await eventually(ground.is_empty)
        sidecar.signal(signal.SIGTERM)
        assert await sidecar.ends() == 0

    assert (one.state, one.worker, one.attempts) == (InvocationState.SUCCEEDED, "worker", 1)
    assert (one.queued_at or now_utc()) <= (one.started_at or one.accepted_at) <= (one.finished_at or one.accepted_at)
    assert one.result is not None
    assert one.result.body == {"words": 3, "attempt": 1}
    assert wrong.state is InvocationState.FAILED
    assert wrong.result is not None
    assert "AttributeError" in (wrong.result.error or "")
    assert (large.state, large.attempts) == (InvocationState.FAILED, 1)
    assert large.result is not None
    assert "too large" in (large.result.error or "")


async def test_large_bodies_come_and_go_whole(ground: WorkerGround) -> None:
    text = "ä b " * 50_000
    request = InvocationRequest(function=FUNCTION, id="large", payload={"text": text, "repeat": 3})
    known = accept("acme", request, now_utc())
    body = await ground.bodies.put_payload(known, json.dumps(request.payload).encode())
    await ground.send_call(accept("acme", request, now_utc(), payload_body=body))
    async with ground.framework(), ground.sidecar():
        over = await ground.ends("large")

    assert over.state is InvocationState.SUCCEEDED
    assert over.result is not None
    assert over.result_body is not None
    assert over.result.body is None
    content = await ground.bodies.get_result(over, over.result_body)
    assert json.loads(content) == {"text": text * 3}


async def test_a_call_whose_payload_is_gone_fails_and_says_so(ground: WorkerGround) -> None:
    request = InvocationRequest(function=FUNCTION, id="lost")
    call = accept("acme", request, now_utc(), payload_body=BodyReference(digest="0" * 64, size=1, chunks=1))
    await ground.send_call(call)
    async with ground.framework(), ground.sidecar():
        over = await ground.ends("lost")

    assert over.state is InvocationState.FAILED
    assert over.result is not None
    assert "no longer there" in (over.result.error or "")


async def test_one_broken_call_does_not_end_the_worker(ground: WorkerGround) -> None:
    request = InvocationRequest(function=FUNCTION, id="broken")
    body = await ground.bodies.put_payload(accept("acme", request, now_utc()), b"{")
    await ground.send_call(accept("acme", request, now_utc(), payload_body=body))
    last = replace(ground.place, attempts=1)
    async with last.framework(), last.sidecar() as sidecar:
        assert (await sidecar.says("call.broken"))["invocation"] == "broken"
        await ground.send("next")
        following = await ground.ends("next")
        over = await ground.ends("broken")
        await eventually(ground.is_empty)

    assert following.state is InvocationState.SUCCEEDED
    assert (over.state, over.attempts) == (InvocationState.DEAD_LETTERED, 1)


WORDY = """\
from serverless import handler
from serverless.framework.calls import Answer

@handler
def answer(payload):
    return Answer("short", headers={"x-long": "x" * 1_100_000})
"""


async def test_an_answer_whose_headers_do_not_fit_is_a_failure_at_the_first_attempt(
    ground: WorkerGround, tmp_path: Path
) -> None:
    file = tmp_path / "wordy.py"
    file.write_text(WORDY)
    wordy = replace(ground.place, handler=f"{file}:answer")
    async with wordy.framework(), wordy.sidecar():
        await ground.send("wordy")
        over = await ground.ends("wordy")

    assert (over.state, over.attempts) == (InvocationState.FAILED, 1)
    assert over.result is not None
    assert "too large" in (over.result.error or "")


async def test_a_call_whose_record_has_no_room_for_an_end_ends_without_what_it_was_called_with(
    ground: WorkerGround,
) -> None:
    call = await ground.send("full")
    used = len(json.dumps(call.to_json(), separators=(",", ":")))
    full = call.model_copy(update={"attempts": ATTEMPTS, "headers": {"x": "x" * (LARGEST_RECORD - used - 40)}})
    await ground.records.change(await ground.look("full"), full)
    async with ground.framework(), ground.sidecar():
        over = await ground.ends("full")
        await eventually(ground.is_empty)

    assert (over.state, over.reason, over.headers) == (InvocationState.DEAD_LETTERED, "AttemptsExhausted", {})


async def test_an_answer_waits_until_there_is_room_for_it(ground: WorkerGround) -> None:
    async with ground.gated.framework(), ground.gated.sidecar() as sidecar:
        gate = await ground.send_gated("paid-for")
        found = await ground.js.stream_info(RECORDS)
        await ground.js.update_stream(found.config.evolve(max_bytes=found.state.bytes))
        gate.touch()
        await says_queue_away(sidecar, invocation_id="paid-for")
        await ground.js.update_stream(found.config)
        call = await ground.ends("paid-for")

    assert (call.state, call.attempts) == (InvocationState.SUCCEEDED, 1)


async def test_a_job_that_takes_longer_than_the_time_to_acknowledge_runs_once(ground: WorkerGround) -> None:
    async with ground.framework(), ground.sidecar():
        await ground.send("long", delay=3 * ACK_SECONDS + 1)
        call = await ground.ends("long")

    assert (call.state, call.attempts) == (InvocationState.SUCCEEDED, 1)


async def test_a_cancelled_call_never_runs_and_a_running_one_is_ended(ground: WorkerGround) -> None:
    await ground.send("waiting")
    seen = await ground.look("waiting")
    await ground.records.change(seen, cancel(seen.call, now_utc()))
    async with ground.framework(), ground.sidecar():
        await ground.send("running", delay=60)
        await ground.runs("running")
        seen = await ground.look("running")
        await ground.records.change(seen, cancel(seen.call, now_utc()))
        running = await ground.ends("running")
        await eventually(ground.is_empty)

    assert running.state is InvocationState.CANCELLED
    waiting = (await ground.look("waiting")).call
    assert (waiting.state, waiting.attempts) == (InvocationState.CANCELLED, 0)


async def test_what_is_too_late_is_not_run_and_what_takes_too_long_is_ended(ground: WorkerGround) -> None:
    await ground.send("too-late", timeout=1, at=now_utc() - timedelta(seconds=2))
    async with ground.framework(), ground.sidecar():
        late = await ground.ends("too-late")
        await ground.send("too-long", timeout=15, delay=60)
        await ground.runs("too-long")
        long = await ground.ends("too-long")

    assert (late.state, late.attempts) == (InvocationState.EXPIRED, 0)
    assert (long.state, long.attempts) == (InvocationState.EXPIRED, 1)
