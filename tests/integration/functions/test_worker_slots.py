"""A worker within the test's own process: with hundreds of slots, and with records that are slow, deaf or behind."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpu_platform.clock import now_utc
from gpu_platform.domain.invocations import (
    BodyReference,
    Invocation,
    InvocationRequest,
    InvocationState,
    accept,
    cancel,
)
from gpu_platform.nats.bodies import Bodies
from gpu_platform.nats.connection import JetStream, QueueAccess, open_queue
from gpu_platform.nats.errors import OutdatedError, QueueUnavailableError
from gpu_platform.nats.records import Records, Seen
from gpu_platform.nats.streams import ensure_consumer, ensure_streams, read_backlog
from gpu_platform.nats.subjects import QUEUE, consumer_name
from serverless import Function, handler
from serverless.framework.server import served
from serverless.sidecar.framework_client import FrameworkClient
from serverless.sidecar.worker import LOOKS_FOR_CHANGED, Worker, WorkerSettings
from tests.support.nats_server import queue_server
from tests.support.waiting import PATIENCE_SECONDS, eventually

TENANT, FUNCTION = "acme", "words"
RETENTION = timedelta(hours=1)
LOOKS = 30


@dataclass
class Ground:
    js: JetStream
    socket: Path
    workers: list[Worker] = field(default_factory=list)

    @asynccontextmanager
    async def working(
        self,
        function: Function | None,
        records: Records | None = None,
        *,
        client: type[FrameworkClient] = FrameworkClient,
        workers: int = 1,
        slots: int = 2,
        attempts: int = 3,
        ack_wait: float = 30,
    ) -> AsyncIterator[None]:
        """Until the end of the block; then they are told to stop, and waited for. Nothing serves without a function."""
        wait = timedelta(seconds=ack_wait)
        await ensure_consumer(self.js, TENANT, FUNCTION, wait)
        settings = WorkerSettings(TENANT, FUNCTION, "worker", slots, attempts, wait, started_at=now_utc())
        with served(function, self.socket) if function else nullcontext():
            async with client(self.socket) as framework, asyncio.TaskGroup() as group:
                for _ in range(workers):
                    worker = Worker(self.js, records or Records(self.js, RETENTION), framework, settings, now_utc)
                    self.workers.append(worker)
                    group.create_task(worker.run())
                try:
                    yield
                finally:
                    for worker in self.workers:
                        worker.stop()

    async def send(self, invocation_id: str, payload: Any = None, **changes: Any) -> None:
        records = Records(self.js, RETENTION)
        request = InvocationRequest(function=FUNCTION, id=invocation_id, payload=payload)
        call = accept(TENANT, request, now_utc()).model_copy(update=changes)
        await records.enqueue((await records.accept(call)).seen.call)

    async def begins(self, invocation_id: str) -> bool:
        seen = await Records(self.js, RETENTION).find(TENANT, invocation_id)
        return seen is not None and seen.call.state is InvocationState.RUNNING

    async def ends(self, invocation_id: str) -> Invocation:
        async def is_over() -> Invocation | None:
            seen = await Records(self.js, RETENTION).find(TENANT, invocation_id)
            return seen.call if seen is not None and seen.call.is_over else None

        return await eventually(is_over)

    async def is_empty(self) -> bool:
        return bool((await self.js.stream_info(QUEUE)).state.messages == 0)

    async def given(self) -> int:
        """How often a call was given to a worker."""
        backlog = await read_backlog(self.js, TENANT, FUNCTION)
        assert backlog is not None
        return backlog.given

    async def requests(self) -> int:
        return int((await self.js.consumer_info(QUEUE, consumer_name(TENANT, FUNCTION))).num_waiting or 0)


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with queue_server(tmp_path) as server, open_queue(QueueAccess(server.url), "test") as js:
        await ensure_streams(js)
        yield Ground(js, tmp_path / "framework.sock")


async def test_workers_with_hundreds_of_free_slots_ask_for_one_call_at_a_time(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    """Each request of each slot would be more than the server keeps."""
    async with ground.working(handler(lambda payload: payload), workers=3, slots=256):
        await eventually(ground.requests)
        assert max([await ground.requests() for _ in range(LOOKS)]) <= 3
        await ground.send("one")
        assert (await ground.ends("one")).state is InvocationState.SUCCEEDED
    assert not [record for record in caplog.records if record.message == "queue.away"]


async def test_as_many_calls_run_at_once_as_there_are_slots(ground: Ground) -> None:
    together = threading.Barrier(16, timeout=PATIENCE_SECONDS)
    async with ground.working(handler(concurrency=16)(lambda _: together.wait()), slots=16):
        for number in range(16):
            await ground.send(f"call-{number}")
        calls = [await ground.ends(f"call-{number}") for number in range(16)]

    assert {call.state for call in calls} == {InvocationState.SUCCEEDED}


async def test_a_call_that_runs_while_the_time_to_acknowledge_is_shortened_runs_once(ground: Ground) -> None:
    begun = threading.Event()

    def take_long(_: Any) -> None:
        begun.set()
        time.sleep(4)

    async with ground.working(handler(concurrency=2)(take_long), ack_wait=60):
        await ground.send("long")
        assert await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
        await ensure_consumer(ground.js, TENANT, FUNCTION, timedelta(seconds=3))
        call = await ground.ends("long")

    assert (call.state, call.attempts, await ground.given()) == (InvocationState.SUCCEEDED, 1, 1)


async def test_a_call_that_comes_again_to_the_worker_that_has_it_runs_once(ground: Ground) -> None:
    """As it does when NATS was away for longer than a worker may be silent."""
    may_end = threading.Event()

    async def has_come_again() -> bool:
        return await ground.given() > 2

    async with ground.working(handler(concurrency=2)(lambda _: may_end.wait(PATIENCE_SECONDS))):
        await ensure_consumer(ground.js, TENANT, FUNCTION, timedelta(seconds=0.2))
        await ground.send("again")
        await eventually(has_come_again)
        may_end.set()
        call = await ground.ends("again")

    assert (call.state, call.attempts) == (InvocationState.SUCCEEDED, 1)


class SlowRecords(Records):
    async def find(self, *place: Any, **how: Any) -> Seen | None:
        await asyncio.sleep(4)
        return await super().find(*place, **how)


async def test_a_call_whose_record_takes_long_to_read_is_given_to_nobody_else(ground: Ground) -> None:
    async with ground.working(handler(lambda payload: payload), SlowRecords(ground.js, RETENTION), ack_wait=3):
        await ground.send("slow")
        call = await ground.ends("slow")

    assert (call.state, call.attempts, await ground.given()) == (InvocationState.SUCCEEDED, 1, 1)


class RecordsNotYet(Records):
    """The first look at each call finds nothing."""

    def __init__(self, js: JetStream) -> None:
        super().__init__(js, RETENTION)
        self._looked_for: set[str] = set()

    async def find(self, tenant: str, invocation_id: str, *place: Any, **how: Any) -> Seen | None:
        if invocation_id not in self._looked_for:
            self._looked_for.add(invocation_id)
            return None
        return await super().find(tenant, invocation_id, *place, **how)


async def test_a_message_without_a_record_is_given_back_once_and_then_dropped(ground: Ground) -> None:
    async with ground.working(handler(lambda payload: payload), RecordsNotYet(ground.js)):
        await ground.send("early")
        never = accept(TENANT, InvocationRequest(function=FUNCTION, id="never"), now_utc())
        await Records(ground.js, RETENTION).enqueue(never)
        early = await ground.ends("early")
        await eventually(ground.is_empty)

    assert (early.state, early.attempts, await ground.given()) == (InvocationState.SUCCEEDED, 1, 4)


class DeafRecords(Records):
    """Does not hear that the first write has succeeded."""

    is_deaf = True

    async def change(self, seen: Seen, call: Invocation) -> Seen:
        changed = await super().change(seen, call)
        if self.is_deaf:
            self.is_deaf = False
            raise QueueUnavailableError("no answer")
        return changed


async def test_a_call_whose_beginning_was_written_unheard_is_run_in_this_attempt(ground: Ground) -> None:
    payload = {"text": "ä", "numbers": [1, 1.5, None]}
    deaf = DeafRecords(ground.js, RETENTION)
    async with ground.working(handler(lambda payload: payload), deaf, attempts=1, ack_wait=3):
        await ground.send("unheard", payload)
        call = await ground.ends("unheard")

    assert (call.state, call.attempts, await ground.given()) == (InvocationState.SUCCEEDED, 1, 1)


class BodiesAway(Bodies):
    """Cannot be read at first."""

    is_away = True

    async def get_payload(self, call: Invocation, reference: BodyReference) -> bytes:
        if self.is_away:
            self.is_away = False
            raise QueueUnavailableError("no answer")
        return await super().get_payload(call, reference)


async def test_a_call_whose_payload_cannot_be_read_for_a_moment_is_run_in_this_attempt(ground: Ground) -> None:
    records, bodies = Records(ground.js, RETENTION), BodiesAway(ground.js, RETENTION)
    call = accept(TENANT, InvocationRequest(function=FUNCTION, id="stored"), now_utc())
    stored = call.model_copy(update={"payload_body": await bodies.put_payload(call, b'{"text": "a"}')})
    async with ground.working(handler(lambda payload: payload), attempts=1):
        for worker in ground.workers:
            worker._bodies = bodies
        await records.enqueue((await records.accept(stored)).seen.call)
        over = await ground.ends("stored")

    assert (over.state, over.attempts, await ground.given()) == (InvocationState.SUCCEEDED, 1, 1)
    assert not bodies.is_away


class RecordsBehind(Records):
    """The first end comes second to another change, and the server that is asked then has no record for some looks."""

    def __init__(self, js: JetStream, looks: int) -> None:
        super().__init__(js, RETENTION)
        self._looks = looks
        self._is_behind = False

    async def change(self, seen: Seen, call: Invocation) -> Seen:
        if call.is_over and not self._is_behind:
            self._is_behind = True
            raise OutdatedError("somebody was faster")
        return await super().change(seen, call)

    async def find(self, *place: Any, **how: Any) -> Seen | None:
        if self._is_behind and self._looks > 0:
            self._looks -= 1
            return None
        return await super().find(*place, **how)


@pytest.mark.parametrize(("looks", "deliveries"), [(10, 1), (LOOKS_FOR_CHANGED, 2)])
async def test_a_call_whose_record_cannot_be_found_for_a_while_is_not_taken_for_done(
    ground: Ground, looks: int, deliveries: int
) -> None:
    """After that while it is given back."""
    async with ground.working(handler(lambda payload: payload), RecordsBehind(ground.js, looks)):
        await ground.send("behind")
        call = await ground.ends("behind")

    assert (call.state, call.attempts, await ground.given()) == (InvocationState.SUCCEEDED, 1, deliveries)


class TrustingClient(FrameworkClient):
    """Takes the framework for ready, as one does that has had an answer from it a moment ago."""

    async def seems_ready(self) -> bool:
        return True


async def test_calls_that_a_dead_framework_never_received_wait_for_the_next_one_and_pay_nothing(
    ground: Ground,
) -> None:
    names = [f"innocent-{number}" for number in range(4)]

    async def were_all_refused() -> bool:
        return await ground.given() > 2 * len(names) or await ground.is_empty()

    async with ground.working(None, client=TrustingClient, slots=4, attempts=1):
        for name in names:
            await ground.send(name)
        await eventually(were_all_refused)
        with served(handler(lambda payload: payload), ground.socket):
            calls = [await ground.ends(name) for name in names]

    assert [(call.state, call.attempts) for call in calls] == [(InvocationState.SUCCEEDED, 1)] * len(names)


@pytest.mark.parametrize("end", [InvocationState.CANCELLED, InvocationState.EXPIRED])
async def test_a_suspect_that_waits_to_run_alone_can_still_be_cancelled_and_expire(
    ground: Ground, end: InvocationState
) -> None:
    """And then it keeps the worker from nothing."""
    may_end = threading.Event()

    async def is_taken() -> bool:
        return await ground.given() > 1

    def run(payload: Any) -> Any:
        return may_end.wait(PATIENCE_SECONDS) if payload == "long" else payload

    async with ground.working(handler(concurrency=2)(run)):
        await ground.send("long", "long")
        await eventually(lambda: ground.begins("long"))
        expires_at = now_utc() + timedelta(seconds=2 if end is InvocationState.EXPIRED else 600)
        await ground.send("suspect", is_alone=True, expires_at=expires_at)
        if end is InvocationState.CANCELLED:
            await eventually(is_taken)
            records = Records(ground.js, RETENTION)
            seen = await records.find(TENANT, "suspect")
            assert seen is not None
            await records.change(seen, cancel(seen.call, now_utc()))
        suspect = await ground.ends("suspect")
        await ground.send("next")
        following = await ground.ends("next")
        may_end.set()
        assert (await ground.ends("long")).state is InvocationState.SUCCEEDED

    assert (suspect.state, suspect.attempts) == (end, 0)
    assert following.state is InvocationState.SUCCEEDED
