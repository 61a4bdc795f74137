"""The sweep on a real nats-server: what somebody accepted comes to an end, also when everybody else forgot it."""

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from gpu_platform.clock import now_utc
from gpu_platform.domain.invocation_plan import ORPHAN_GRACE, QUEUE_GRACE, Sweep
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
)
from gpu_platform.kube import KubeError
from gpu_platform.nats.bodies import Bodies, MissingBodyError
from gpu_platform.nats.connection import JetStream, open_queue
from gpu_platform.nats.credentials import Keyring
from gpu_platform.nats.errors import QueueUnavailableError, TooLargeError
from gpu_platform.nats.listing import Listing
from gpu_platform.nats.permissions import QueueUser, inbox_prefix_of
from gpu_platform.nats.records import Records, Seen
from gpu_platform.nats.streams import LARGEST_RECORD, ensure_streams
from gpu_platform.nats.subjects import record_subject
from reconciler.invocations_sweep import InvocationsSweep
from tests.support.nats_server import QueueServer, queue_server
from tests.support.waiting import NotYet, eventually

RETENTION = timedelta(hours=1)


@dataclass
class Ground:
    js: JetStream
    server: QueueServer
    records: Records
    functions: set[tuple[str, str]] = field(default_factory=lambda: {("acme", "resize")})
    later: timedelta = timedelta(minutes=2)
    """How far the sweep's clock is ahead: nobody wants to wait for its patience."""

    def sweep(self, queue_grace: timedelta = QUEUE_GRACE) -> InvocationsSweep:
        async def exists(tenant: str, function: str) -> bool:
            if function == "unknown":
                raise KubeError(403, "Forbidden", "not this one")
            return (tenant, function) in self.functions

        return InvocationsSweep(self.js, exists, RETENTION, self.now, queue_grace=queue_grace)

    def now(self) -> datetime:
        return now_utc() + self.later

    async def accept(self, invocation_id: str, timeout: int = 3_600, function: str = "resize") -> Seen:
        request = InvocationRequest(function=function, id=invocation_id, payload=1, timeout_seconds=timeout)
        return (await self.records.accept(accept("acme", request, now_utc()))).seen

    async def look(self, invocation_id: str) -> Invocation:
        seen = await self.records.find("acme", invocation_id)
        assert seen is not None
        return seen.call

    async def accept_large(self, invocation_id: str) -> Seen:
        """With a payload beside its record."""
        request = InvocationRequest(function="resize", id=invocation_id, timeout_seconds=3_600)
        call = accept("acme", request, now_utc())
        body = await Bodies(self.js, RETENTION).put_payload(call, b"x" * 100_000)
        return (await self.records.accept(call.model_copy(update={"payload_body": body}))).seen

    async def with_bodies(self) -> set[str]:
        return {invocation_id for _, _, invocation_id in (await Listing(self.js).read_bodies()).owners}

    async def queued(self) -> set[str]:
        return {each.invocation_id for each in await Listing(self.js).read_queue()}


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    user = QueueUser.FUNCTIONS
    async with (
        queue_server(tmp_path, keyring=Keyring.new(secrets.token_bytes)) as server,
        open_queue(server.access_of(user), "test", inbox_prefix=inbox_prefix_of(user)) as js,
    ):
        await ensure_streams(js)
        yield Ground(js, server, Records(js, RETENTION))


async def test_a_call_that_was_accepted_and_never_queued_is_queued_once(ground: Ground) -> None:
    for name in ("lost", "safe"):
        await ground.accept(name)
    await ground.records.enqueue(await ground.look("safe"))
    await ground.accept("other")
    sweep = ground.sweep()

    assert await sweep.sweep() == Counter({Sweep.ENQUEUE: 2})
    assert await ground.queued() == {"lost", "safe", "other"}
    assert await sweep.sweep() == Counter()
    assert await ground.sweep().sweep() == Counter()
    assert (await ground.look("lost")).state is InvocationState.QUEUED


async def test_a_call_that_was_just_accepted_is_left_to_who_accepted_it(ground: Ground) -> None:
    ground.later = timedelta()
    await ground.accept("new")

    assert await ground.sweep().sweep() == Counter()
    assert await ground.queued() == set()


async def test_a_running_call_whose_message_was_lost_is_queued_again(ground: Ground) -> None:
    seen = await ground.accept("running")
    await ground.records.change(seen, begin(seen.call, "worker-1", now_utc()))

    assert await ground.sweep().sweep() == Counter({Sweep.ENQUEUE: 1})
    assert await ground.queued() == {"running"}


async def test_what_nobody_runs_expires(ground: Ground) -> None:
    for name in ("queued", "lost"):
        await ground.accept(name, timeout=60)
    await ground.records.enqueue(await ground.look("queued"))

    assert await ground.sweep().sweep() == Counter({Sweep.EXPIRE: 2})
    assert {(await ground.look(name)).state for name in ("queued", "lost")} == {InvocationState.EXPIRED}
    assert await ground.queued() == set()


async def test_the_calls_of_a_deleted_function_end(ground: Ground) -> None:
    waiting, running, over = [await ground.accept(name) for name in ("waiting", "running", "over")]
    await ground.records.enqueue(waiting.call)
    await ground.records.change(running, begin(running.call, "worker-1", now_utc()))
    begun = await ground.records.change(over, begin(over.call, "worker-1", now_utc()))
    await ground.records.change(begun, answer(begun.call, InvocationResult(body=1), now_utc()))
    ground.functions.clear()
    ground.later = timedelta()

    assert await ground.sweep().sweep() == Counter({Sweep.CANCEL_DELETED: 2})
    for name in ("waiting", "running"):
        call = await ground.look(name)
        assert (call.state, call.reason) == (InvocationState.CANCELLED, "FunctionDeleted")
    assert (await ground.look("over")).state is InvocationState.SUCCEEDED
    assert await ground.queued() == set()


async def test_a_call_that_was_asked_to_end_and_has_nobody_who_could_is_ended(ground: Ground) -> None:
    seen = await ground.accept("orphan")
    begun = await ground.records.change(seen, begin(seen.call, "worker-1", now_utc()))
    await ground.records.change(begun, cancel(begun.call, now_utc()))

    assert await ground.sweep().sweep() == Counter({Sweep.CANCEL: 1})
    assert (await ground.look("orphan")).state is InvocationState.CANCELLED


async def test_messages_without_an_open_call_are_removed(ground: Ground) -> None:
    over, never = (
        await ground.accept("over"),
        accept("acme", InvocationRequest(function="resize", id="never"), now_utc()),
    )
    await ground.accept("open")
    for call in (over.call, never, await ground.look("open")):
        await ground.records.enqueue(call)
    await ground.records.change(over, cancel(over.call, now_utc()))
    ground.later = timedelta()
    await ground.sweep().sweep()
    assert await ground.queued() == {"over", "never", "open"}

    ground.later = timedelta(minutes=2)
    await ground.sweep().sweep()
    assert await ground.queued() == {"open"}


async def test_what_changes_between_two_looks_is_seen_by_the_second(ground: Ground) -> None:
    sweep = ground.sweep()
    seen = await ground.accept("one", timeout=60)
    ground.later = timedelta()
    assert await sweep.sweep() == Counter()
    await ground.records.change(seen, cancel(seen.call, now_utc()))
    await ground.accept("two", timeout=60)
    ground.later = timedelta(minutes=2)

    assert await sweep.sweep() == Counter({Sweep.EXPIRE: 1})
    assert (await ground.look("one")).state is InvocationState.CANCELLED


async def test_what_is_no_record_does_not_stop_it(ground: Ground) -> None:
    await ground.js.publish(record_subject("acme", "strange", "resize"), b"{}")
    await ground.accept("one", timeout=60)

    assert await ground.sweep().sweep() == Counter({Sweep.EXPIRE: 1})


async def test_a_forged_record_of_another_function_does_not_keep_a_call_from_its_end(ground: Ground) -> None:
    await ground.accept("one", timeout=60)
    forged = accept("acme", InvocationRequest(function="other", id="one"), now_utc())
    over = forged.model_copy(update={"state": InvocationState.SUCCEEDED})
    await ground.js.publish(record_subject("acme", "one", "other"), json.dumps(over.to_json()).encode())

    assert await ground.sweep().sweep() == Counter({Sweep.EXPIRE: 1})
    seen = await ground.records.find("acme", "one", "resize")
    assert seen is not None
    assert seen.call.state is InvocationState.EXPIRED


async def test_a_function_that_cannot_be_looked_up_counts_as_there_and_holds_up_no_other(ground: Ground) -> None:
    await ground.accept("unknown", function="unknown")
    await ground.accept("late", timeout=60, function="unknown")
    await ground.accept("one", timeout=60)

    assert await ground.sweep().sweep() == Counter({Sweep.ENQUEUE: 1, Sweep.EXPIRE: 2})
    assert (await ground.look("unknown")).state is InvocationState.QUEUED


async def test_a_record_without_room_for_its_end_ends_without_its_contents(ground: Ground) -> None:
    request = InvocationRequest(function="resize", id="full", timeout_seconds=60)
    full = accept("acme", request, now_utc())
    room = LARGEST_RECORD - len(json.dumps(full.model_copy(update={"payload": ""}).to_json(), separators=(",", ":")))
    data = json.dumps(full.model_copy(update={"payload": "x" * room}).to_json(), separators=(",", ":")).encode()
    await ground.js.publish(record_subject("acme", "full", "resize"), data)

    assert await ground.sweep().sweep() == Counter({Sweep.EXPIRE: 1})
    assert (await ground.look("full")).state is InvocationState.EXPIRED


async def test_one_call_that_cannot_be_ended_holds_up_no_other(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bad", "good"):
        await ground.accept(name, timeout=60)
    await ground.records.enqueue(accept("acme", InvocationRequest(function="resize", id="never"), now_utc()))
    change = Records.change

    async def refuse_one(records: Records, seen: Seen, call: Invocation) -> Seen:
        if call.id == "bad":
            raise TooLargeError("it does not fit")
        return await change(records, seen, call)

    monkeypatch.setattr(Records, "change", refuse_one)
    assert await ground.sweep().sweep() == Counter({Sweep.EXPIRE: 1})
    assert await ground.queued() == set()


async def test_it_goes_on_when_nats_was_away(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    ground.later = timedelta()
    # It sweeps twice a second.
    sweeping = asyncio.create_task(ground.sweep(queue_grace=timedelta(seconds=3)).run())
    ground.server.kill()

    async def is_missed() -> bool | NotYet:
        return "invocations.not_swept" in caplog.text or NotYet(caplog.text)

    await eventually(is_missed)
    await ground.server.start()
    ground.later = timedelta(minutes=2)

    async def is_accepted() -> bool:
        try:
            return bool(await ground.accept("late", timeout=60))
        except QueueUnavailableError:
            return False

    async def is_expired() -> bool:
        return (await ground.look("late")).state is InvocationState.EXPIRED

    await eventually(is_accepted)
    await eventually(is_expired)
    sweeping.cancel()
    await asyncio.wait({sweeping}, timeout=10)
    assert sweeping.cancelled()


async def test_the_bodies_of_cancelled_invocations_are_deleted_when_the_one_who_cancelled_died(ground: Ground) -> None:
    """Also of one that a worker ended, and that cannot delete anything itself; also what it stored too late."""
    waiting, running, kept = [await ground.accept_large(name) for name in ("waiting", "running", "kept")]
    await ground.records.enqueue(kept.call)
    sweep = ground.sweep()
    await sweep.sweep()
    assert await ground.with_bodies() == {"waiting", "running", "kept"}

    await ground.records.change(waiting, cancel(waiting.call, now_utc()))
    begun = await ground.records.change(running, begin(running.call, "worker-1", now_utc()))
    asked = await ground.records.change(begun, cancel(begun.call, now_utc()))
    await ground.records.change(asked, cancel(asked.call, now_utc()))
    await sweep.sweep()
    assert await ground.with_bodies() == {"kept"}

    await Bodies(ground.js, RETENTION).put_result(running.call, b"late" * 50_000)
    await ground.sweep().sweep()
    assert await ground.with_bodies() == {"kept"}


async def test_bodies_without_a_record_are_deleted_after_a_grace(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of an invocation that is being accepted have none either."""
    monkeypatch.setattr("reconciler.invocations_sweep.LOOK_SECONDS", 0.0)
    deleted, reused = [await ground.accept_large(name) for name in ("deleted", "reused")]
    for seen in (deleted, reused):
        await ground.records.delete(await ground.records.change(seen, expire(seen.call, now_utc())))
    sweep = ground.sweep()
    await sweep.sweep()
    assert await ground.with_bodies() == {"deleted", "reused"}

    # Another invocation is stored under the same id, and its record is not written yet.
    await Bodies(ground.js, RETENTION).put_payload(reused.call, b"y" * 100_000)
    ground.later += ORPHAN_GRACE
    await sweep.sweep()
    assert await ground.with_bodies() == {"reused"}


async def test_payloads_of_a_deleted_function_are_deleted_and_results_kept(ground: Ground) -> None:
    bodies = Bodies(ground.js, RETENTION)
    seen = await ground.accept_large("over")
    begun = await ground.records.change(seen, begin(seen.call, "worker-1", now_utc()))
    reference = await bodies.put_result(begun.call, b"z" * 100_000)
    over = await ground.records.change(begun, answer(begun.call, InvocationResult(), now_utc(), reference))
    await ground.accept_large("waiting")
    ground.later = timedelta()
    await ground.sweep().sweep()
    assert await ground.with_bodies() == {"over", "waiting"}

    ground.functions.clear()
    sweep = ground.sweep()
    await sweep.sweep()
    await sweep.sweep()
    assert await ground.with_bodies() == {"over"}
    assert await bodies.get_result(over.call, reference) == b"z" * 100_000
    with pytest.raises(MissingBodyError):
        await bodies.get_payload(over.call, over.call.payload_body or reference)
