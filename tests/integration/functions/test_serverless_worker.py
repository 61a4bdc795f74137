"""Real worker processes on a real nats-server: every accepted call comes to exactly one end, whatever dies."""

import asyncio
import json
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpu_platform.adapters.clock import now_utc
from gpu_platform.adapters.queue.bodies import Bodies
from gpu_platform.adapters.queue.connection import JetStream, open_queue
from gpu_platform.adapters.queue.errors import QueueUnavailableError
from gpu_platform.adapters.queue.layout import LARGEST_RECORD, ensure_consumer, ensure_streams
from gpu_platform.adapters.queue.records import Records, Seen
from gpu_platform.domain.invocations import (
    BodyReference,
    Invocation,
    InvocationRequest,
    InvocationState,
    accept,
    cancel,
)
from gpu_platform.domain.queue_keyring import Keyring
from gpu_platform.domain.queue_permissions import QueueUser, inbox_prefix_of
from gpu_platform.domain.queue_subjects import RECORDS
from tests.support.daemons import Daemon
from tests.support.function_workers import WorkerPlace
from tests.support.nats_server import QueueServer, queue_server
from tests.support.waiting import eventually

FUNCTION = "words"
ACK_SECONDS = 3
ATTEMPTS = 3


@dataclass
class Ground:
    """A function's queue, and places for its workers."""

    place: WorkerPlace
    server: QueueServer
    js: JetStream
    records: Records
    bodies: Bodies

    async def send(self, invocation_id: str, timeout: int | None = None, **payload: Any) -> Invocation:
        request = InvocationRequest(
            function=FUNCTION, id=invocation_id, payload={"text": "a b c", **payload}, timeout_seconds=timeout
        )
        call = (await self.records.accept(accept("acme", request, now_utc()))).seen.call
        await self.records.enqueue(call)
        return call

    async def look(self, invocation_id: str) -> Seen:
        seen = await self.records.find("acme", invocation_id)
        assert seen is not None
        return seen

    async def ends(self, invocation_id: str, within: float = 180) -> Invocation:
        async def is_over() -> Invocation | None:
            try:
                call = (await self.look(invocation_id)).call
            except QueueUnavailableError:
                return None
            return call if call.is_over else None

        return await eventually(is_over, within=within)

    async def runs(self, invocation_id: str) -> Invocation:
        async def is_running() -> Invocation | None:
            call = (await self.look(invocation_id)).call
            return call if call.state is InvocationState.RUNNING else None

        return await eventually(is_running)

    async def is_empty(self) -> bool:
        return bool((await self.js.stream_info("SERVERLESS_INVOKE")).state.messages == 0)

    def framework(self, name: str = "worker") -> AbstractAsyncContextManager[None]:
        return self.place.framework(name)

    def sidecar(self, name: str = "worker") -> AbstractAsyncContextManager[Daemon]:
        return self.place.sidecar(name)


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    """Everybody with the rights that they have in an installation, and no others."""
    user = QueueUser.FUNCTIONS
    async with (
        queue_server(tmp_path, keyring=Keyring.new(secrets.token_bytes)) as server,
        open_queue(server.access_of(user), "test", inbox_prefix=inbox_prefix_of(user)) as js,
    ):
        await ensure_streams(js)
        await ensure_consumer(js, "acme", FUNCTION, timedelta(seconds=ACK_SECONDS))
        credentials = server.sidecar_access("acme", FUNCTION).credentials
        place = WorkerPlace(tmp_path, server.url, "acme", FUNCTION, ACK_SECONDS, ATTEMPTS, credentials)
        yield Ground(place, server, js, Records(js, timedelta(hours=1)), Bodies(js, timedelta(hours=1)))


async def test_a_call_is_run_answered_and_taken_from_the_queue(ground: Ground) -> None:
    await ground.send("one")
    await ground.send("wrong", text=None)
    await ground.send("too-large", repeat=4_000_000)
    async with ground.framework(), ground.sidecar():
        one, wrong, large = [await ground.ends(name) for name in ("one", "wrong", "too-large")]
        await eventually(ground.is_empty)

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


async def test_large_bodies_come_and_go_whole(ground: Ground) -> None:
    text = "ä b " * 50_000
    request = InvocationRequest(function=FUNCTION, id="large", payload={"text": text, "repeat": 3})
    known = accept("acme", request, now_utc())
    body = await ground.bodies.put_payload(known, json.dumps(request.payload).encode())
    call = accept("acme", request, now_utc(), payload_body=body)
    await ground.records.accept(call)
    await ground.records.enqueue(call)
    async with ground.framework(), ground.sidecar():
        over = await ground.ends("large")

    assert over.state is InvocationState.SUCCEEDED
    assert over.result is not None
    assert over.result_body is not None
    assert over.result.body is None
    content = await ground.bodies.get_result(over, over.result_body)
    assert json.loads(content) == {"text": text * 3}


async def test_a_call_whose_payload_is_gone_fails_and_says_so(ground: Ground) -> None:
    request = InvocationRequest(function=FUNCTION, id="lost")
    call = accept("acme", request, now_utc(), payload_body=BodyReference(digest="0" * 64, size=1, chunks=1))
    await ground.records.accept(call)
    await ground.records.enqueue(call)
    async with ground.framework(), ground.sidecar():
        over = await ground.ends("lost")

    assert over.state is InvocationState.FAILED
    assert over.result is not None
    assert "no longer there" in (over.result.error or "")


async def test_one_broken_call_does_not_end_the_worker(ground: Ground) -> None:
    request = InvocationRequest(function=FUNCTION, id="broken")
    body = await ground.bodies.put_payload(accept("acme", request, now_utc()), b"{")
    broken = accept("acme", request, now_utc(), payload_body=body)
    await ground.records.accept(broken)
    await ground.records.enqueue(broken)
    async with ground.framework(), ground.sidecar() as sidecar:
        assert (await sidecar.says("call.broken"))["invocation"] == "broken"
        await ground.send("next")
        following = await ground.ends("next")
        over = await ground.ends("broken")
        await eventually(ground.is_empty)

    assert following.state is InvocationState.SUCCEEDED
    assert (over.state, over.attempts) == (InvocationState.DEAD_LETTERED, ATTEMPTS)


WORDY = """\
from serverless import handler
from serverless.framework.calls import Answer

@handler
def answer(payload):
    return Answer("short", headers={"x-long": "x" * 1_100_000})
"""


async def test_an_answer_whose_headers_do_not_fit_is_a_failure_at_the_first_attempt(
    ground: Ground, tmp_path: Path
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


async def test_a_call_whose_record_has_no_room_for_an_end_ends_without_what_it_was_called_with(ground: Ground) -> None:
    call = await ground.send("full")
    used = len(json.dumps(call.to_json(), separators=(",", ":")))
    full = call.model_copy(update={"attempts": ATTEMPTS, "headers": {"x": "x" * (LARGEST_RECORD - used - 40)}})
    await ground.records.change(await ground.look("full"), full)
    async with ground.framework(), ground.sidecar():
        over = await ground.ends("full")
        await eventually(ground.is_empty)

    assert (over.state, over.reason, over.headers) == (InvocationState.DEAD_LETTERED, "AttemptsExhausted", {})


async def test_an_answer_waits_until_there_is_room_for_it(ground: Ground) -> None:
    async with ground.framework(), ground.sidecar() as sidecar:
        await ground.send("paid-for", delay=2)
        await ground.runs("paid-for")
        found = await ground.js.stream_info(RECORDS)
        await ground.js.update_stream(found.config.evolve(max_bytes=found.state.bytes))
        await sidecar.says("queue.away")
        await ground.js.update_stream(found.config)
        call = await ground.ends("paid-for")

    assert (call.state, call.attempts) == (InvocationState.SUCCEEDED, 1)


async def test_a_message_without_a_record_is_given_back_once_and_then_dropped(ground: Ground) -> None:
    request = InvocationRequest(function=FUNCTION, id="early", payload={"text": "a"})
    early = accept("acme", request, now_utc())
    await ground.records.enqueue(early)
    await ground.records.enqueue(accept("acme", request.model_copy(update={"id": "never"}), now_utc()))
    async with ground.framework(), ground.sidecar():
        await asyncio.sleep(0.5)
        await ground.records.accept(early)
        over = await ground.ends("early")
        await eventually(ground.is_empty)

    assert (over.state, over.attempts) == (InvocationState.SUCCEEDED, 1)


async def test_an_answer_is_written_once_nats_is_back(ground: Ground) -> None:
    async with ground.framework(), ground.sidecar():
        await ground.send("paid-for", delay=2)
        await ground.runs("paid-for")
        ground.server.kill()
        await asyncio.sleep(3)
        await ground.server.start()
        call = await ground.ends("paid-for")

    assert (call.state, call.attempts) == (InvocationState.SUCCEEDED, 1)


async def test_a_job_that_takes_longer_than_the_time_to_acknowledge_runs_once(ground: Ground) -> None:
    await ensure_consumer(ground.js, "acme", FUNCTION, timedelta(seconds=10))
    patient = replace(ground.place, ack_seconds=10)
    async with patient.framework(), patient.sidecar():
        await ground.send("long", delay=35)
        call = await ground.ends("long", within=90)

    assert (call.state, call.attempts) == (InvocationState.SUCCEEDED, 1)


async def test_a_handler_that_dies_is_tried_again_and_at_last_a_dead_letter(ground: Ground) -> None:
    async with ground.framework(), ground.sidecar():
        # One after the other: a handler that dies takes along what else it works on.
        await ground.send("twice", crash=1)
        twice = await ground.ends("twice")
        await ground.send("poison", crash=ATTEMPTS)
        poison = await ground.ends("poison")
        await eventually(ground.is_empty)

    assert (twice.state, twice.attempts) == (InvocationState.SUCCEEDED, 2)
    assert (poison.state, poison.attempts) == (InvocationState.DEAD_LETTERED, ATTEMPTS)


async def test_a_worker_that_is_killed_in_the_middle_leaves_its_calls_to_the_next_one(ground: Ground) -> None:
    async with ground.framework("first"), ground.framework("second"), ground.sidecar("first") as first:
        await ground.send("left", delay=8)
        await ground.runs("left")
        async with ground.sidecar("second") as second:
            await second.says("sidecar.started")
            first.signal(signal.SIGKILL)
            killed_at = now_utc()
            call = await ground.ends("left")

    assert (call.state, call.worker) == (InvocationState.SUCCEEDED, "second")
    assert call.started_at is not None
    assert call.started_at - killed_at <= timedelta(seconds=ACK_SECONDS + 5)


async def test_a_worker_that_is_killed_at_the_last_attempt_leaves_a_dead_letter(ground: Ground) -> None:
    last = replace(ground.place, attempts=1)
    async with last.framework("first"), last.framework("second"):
        async with last.sidecar("first") as first:
            await ground.send("last", delay=60)
            await ground.runs("last")
            first.signal(signal.SIGKILL)
            await first.ends()
        async with last.sidecar("second"):
            call = await ground.ends("last")

    assert (call.state, call.attempts, call.worker) == (InvocationState.DEAD_LETTERED, 1, "first")


async def test_a_worker_that_is_told_to_end_finishes_what_it_has(ground: Ground) -> None:
    async with ground.framework(), ground.sidecar() as sidecar:
        await ground.send("under-way", delay=2)
        await ground.runs("under-way")
        sidecar.signal(signal.SIGTERM)
        await ground.send("late")
        assert await sidecar.ends() == 0

        assert (await ground.look("under-way")).call.state is InvocationState.SUCCEEDED
        # The queue may have given it away already: then it is run, too.
        assert (await ground.look("late")).call.state in (InvocationState.QUEUED, InvocationState.SUCCEEDED)


async def test_a_worker_that_has_nothing_to_do_ends_at_once_when_it_is_told_to(ground: Ground) -> None:
    async with ground.framework(), ground.sidecar() as sidecar:
        # It has just asked for the next one.
        await ground.send("last")
        await ground.ends("last")
        await eventually(ground.is_empty)
        told_at = now_utc()
        sidecar.signal(signal.SIGTERM)
        stopped = await sidecar.says("sidecar.stopped")

    assert datetime.fromisoformat(stopped["time"]) - told_at < timedelta(seconds=2)


async def test_a_cancelled_call_never_runs_and_a_running_one_is_ended(ground: Ground) -> None:
    await ground.send("waiting")
    seen = await ground.look("waiting")
    await ground.records.change(seen, cancel(seen.call, now_utc()))
    async with ground.framework(), ground.sidecar():
        await ground.send("running", delay=60)
        await ground.runs("running")
        seen = await ground.look("running")
        await ground.records.change(seen, cancel(seen.call, now_utc()))
        running = await ground.ends("running", within=45)
        await eventually(ground.is_empty)

    assert running.state is InvocationState.CANCELLED
    waiting = (await ground.look("waiting")).call
    assert (waiting.state, waiting.attempts) == (InvocationState.CANCELLED, 0)


async def test_what_is_too_late_is_not_run_and_what_takes_too_long_is_ended(ground: Ground) -> None:
    await ground.send("too-late", timeout=1)
    await asyncio.sleep(1.1)
    async with ground.framework(), ground.sidecar():
        late = await ground.ends("too-late")
        await ground.send("too-long", timeout=5, delay=60)
        await ground.runs("too-long")
        long = await ground.ends("too-long")

    assert (late.state, late.attempts) == (InvocationState.EXPIRED, 0)
    assert (long.state, long.attempts) == (InvocationState.EXPIRED, 1)


async def test_calls_survive_the_death_of_everything(ground: Ground) -> None:
    """Bounded chaos: the server, sidecars and frameworks die in turn while fifty calls are under way."""
    names = [f"call-{number}" for number in range(50)]
    for name in names:
        await ground.send(name, delay=0.1)
    for turn in range(4):
        async with ground.framework(), ground.sidecar() as sidecar:
            await sidecar.says("sidecar.started")
            await asyncio.sleep(1 + turn / 2)
            if turn % 2:
                ground.server.kill()
                await ground.server.start()
            sidecar.signal(signal.SIGKILL)
            await sidecar.ends()
    async with ground.framework(), ground.sidecar():
        calls = [await ground.ends(name, within=120) for name in names]

    assert {call.state for call in calls} <= {InvocationState.SUCCEEDED, InvocationState.DEAD_LETTERED}
    assert sum(call.state is InvocationState.SUCCEEDED for call in calls) > len(calls) / 2
