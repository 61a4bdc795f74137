"""Fetches invocations from the queue, one per free slot, and brings each to its end: record first, acknowledgement
last. An end whose record would be too large is written with less and less of the answer."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from gpu_platform.clock import Backoff, wait_at_most
from gpu_platform.domain.invocation_plan import Delivery, PutBack, plan_delivery, plan_loss
from gpu_platform.domain.invocations import (
    INLINE_BODY,
    LARGEST_BODY,
    BodyReference,
    ColdStart,
    Invocation,
    InvocationResult,
    InvocationState,
    answer,
    begin,
    bury,
    cancel,
    expire,
    put_back,
)
from gpu_platform.nats.bodies import Bodies, MissingBodyError
from gpu_platform.nats.connection import JetStream
from gpu_platform.nats.deliveries import Delivered, kept, take_call
from gpu_platform.nats.errors import OutdatedError, QueueFullError, QueueUnavailableError, TooLargeError
from gpu_platform.nats.records import Records, Seen
from gpu_platform.process import pass_point
from serverless.framework.calls import Call, NotJsonError, encode_json
from serverless.sidecar.framework_client import FrameworkClient, NoAnswerError
from serverless.sidecar.turns import Turns

LONGEST_REASON = 500
End = Callable[[Invocation], Invocation]
log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""Between two looks at whether a running call is still wanted, or whether the framework is ready."""

REQUESTS = 10
"""For a call, between two looks at whether the framework is ready."""

LOOK_AGAIN_SECONDS = 1.0
"""For a record that is not here yet."""

LOOKS_FOR_BEGUN = 5
"""For a beginning of which nobody knows whether it was written. A server that was started again is back by then."""

OUTDATED_SECONDS = 0.05
"""Before the next look at a record that somebody else changed: a server that is behind must not be asked in a loop."""

LOOKS_FOR_CHANGED = 40
"""About two seconds: no server is that much behind and well."""

RETRY = Backoff(first=1.0, longest=60.0)
T = TypeVar("T")

LastWord = Callable[[JetStream], Awaitable[None]]
"""What the queue is told of a message in the end."""


def without_the_answer(end: End, error: str, call: Invocation) -> Invocation:
    """Its headers or its error are too large: a large body is stored elsewhere."""
    over = end(call)
    if over.result is None:
        return over
    result = InvocationResult(status_code=500, error=f"the answer is too large: {error}"[:LONGEST_REASON])
    return over.model_copy(update={"state": InvocationState.FAILED, "result": result, "result_body": None})


def bare(end: End, error: str, call: Invocation) -> Invocation:
    """The last resort: that it has ended, and why."""
    over = end(call)
    nothing: dict[str, Any] = {"headers": {}, "attributes": {}, "payload": None, "result": None, "result_body": None}
    return over.model_copy(update={**nothing, "reason": (over.reason or f"TooLarge: {error}")[:LONGEST_REASON]})


@dataclass(frozen=True)
class WorkerSettings:
    tenant: str
    function: str
    name: str
    concurrency: int
    max_attempts: int
    ack_wait: timedelta
    started_at: datetime
    woken_at: datetime | None = None
    claimed_at: datetime | None = None
    """How this worker came, if calls brought it."""


class Worker:
    def __init__(
        self,
        js: JetStream,
        records: Records,
        framework: FrameworkClient,
        settings: WorkerSettings,
        now: Callable[[], datetime],
    ) -> None:
        self._js = js
        self._records = records
        self._bodies = Bodies(js, records.retention)
        self._framework = framework
        self._settings = settings
        self._now = now
        self._stopping = asyncio.Event()
        self._taking = asyncio.Lock()
        self._under_way: set[str] = set()
        self._turns = Turns()
        self._start: ColdStart | None = None

    def stop(self) -> None:
        """Take no more calls; `run` ends when those under way have ended."""
        self._stopping.set()

    def go_on_with(self, js: JetStream) -> None:
        """In place of a connection that is closed for good. Calls under way go on, and are kept over this one."""
        self._js = js
        self._records = Records(js, self._records.retention)
        self._bodies = Bodies(js, self._records.retention)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._settings.concurrency):
                group.create_task(self._serve())

    async def _serve(self) -> None:
        """One slot."""
        while not self._stopping.is_set():
            taken: Delivered | None = None
            try:
                # One request for all slots: the server keeps a few hundred for all workers of a function.
                async with self._taking:
                    taken = await self._take()
                if taken is not None:
                    await self._bring_to_an_end(taken)
            except (QueueUnavailableError, QueueFullError) as error:
                # Whatever was taken stays in the queue, and comes again.
                log.warning("queue.away", extra={"error": str(error)})
                await wait_at_most(RETRY.first, self._stopping)
            except Exception:
                # One call that nobody has thought of does not end the others.
                log.exception("call.broken", extra={"invocation": taken.invocation_id if taken else None})
                if taken is not None:
                    with suppress(QueueUnavailableError):
                        await taken.give_back(self._js, RETRY.delay(taken.number))
                await wait_at_most(RETRY.first, self._stopping)

    async def _take(self) -> Delivered | None:
        """The next call; None when there was none for a while, or when it is time to stop. Whoever waits here lets the
        other slots wait too: what is away for one is away for all."""
        if self._stopping.is_set():
            return None
        if not await self._framework.seems_ready():
            # Not begun, or begun again after it died: a call that it cannot take would only lose an attempt.
            await wait_at_most(LOOK_SECONDS, self._stopping)
            return None
        if not self._turns.is_open.is_set():
            await wait_at_most(LOOK_SECONDS, self._turns.is_open)
            return None
        self._note_ready()
        try:
            for _ in range(REQUESTS):
                taken = await take_call(self._js, self._settings.tenant, self._settings.function)
                if taken is not None or self._stopping.is_set() or not self._turns.is_open.is_set():
                    return taken
        except QueueUnavailableError as error:
            log.warning("queue.away", extra={"error": str(error)})
            await wait_at_most(RETRY.first, self._stopping)
        return None

    def _note_ready(self) -> None:
        if self._start is None:
            settings = self._settings
            self._start = ColdStart(
                woken_at=settings.woken_at,
                claimed_at=settings.claimed_at,
                started_at=settings.started_at,
                ready_at=self._now(),
            )

    async def _bring_to_an_end(self, taken: Delivered) -> None:
        if taken.invocation_id in self._under_way:
            # The queue was away for longer than we may be silent. The slot that has the call says what becomes of it.
            return
        self._under_way.add(taken.invocation_id)
        try:
            async with kept(taken, lambda: self._js, self._settings.ack_wait):
                say = await self._work_on(taken)
            # Not while it is kept: that would undo the delay of what is given back.
            await say(self._js)
        finally:
            self._under_way.discard(taken.invocation_id)

    async def _work_on(self, taken: Delivered) -> LastWord:
        seen = await self._find(taken.invocation_id)
        action = plan_delivery(seen.call if seen else None, taken.number, self._settings.max_attempts, self._now())
        if action is Delivery.LOOK_AGAIN:
            return partial(taken.give_back, delay_seconds=LOOK_AGAIN_SECONDS)
        if seen is None or action is Delivery.DROP:
            return taken.drop
        if action in (Delivery.RUN, Delivery.RUN_ALONE):
            try:
                return await self._attempt(taken, seen, is_suspect=action is Delivery.RUN_ALONE)
            finally:
                self._turns.leave(seen.call.id)
        if not await self._end(seen, self._end_of(action)):
            return partial(taken.give_back, delay_seconds=LOOK_AGAIN_SECONDS)
        pass_point("sidecar.ended")
        return taken.finish

    async def _attempt(self, taken: Delivered, seen: Seen, *, is_suspect: bool) -> LastWord:
        has_turn = await self._wait_to_be_alone(seen.call) if is_suspect else self._turns.join(seen.call.id)
        running = await self._begin(taken, seen, is_alone=is_suspect) if has_turn else None
        if running is None:
            # Cancelled in this moment, or another worker has it, or this one runs another call alone: look again.
            return partial(taken.give_back, delay_seconds=LOOK_SECONDS)
        pass_point("sidecar.begun")
        if not await self._run(running):
            return partial(taken.give_back, delay_seconds=RETRY.delay(running.call.attempts))
        pass_point("sidecar.ended")
        return taken.finish

    async def _wait_to_be_alone(self, call: Invocation) -> bool:
        """False: it cannot run here now, or is not wanted any more."""
        if not self._turns.reserve(call.id):
            return False
        if await self._wait_until_unwanted(call, self._turns.is_idle) is not None or self._stopping.is_set():
            return False
        self._turns.enter_alone(call.id)
        return True

    async def _begin(self, taken: Delivered, seen: Seen, *, is_alone: bool) -> Seen | None:
        """None: somebody else was faster."""
        settings = self._settings
        is_alone = is_alone or settings.concurrency == 1
        begun = begin(seen.call, settings.name, self._now(), taken.queued_at, self._start, is_alone=is_alone)
        try:
            return await self._records.change(seen, begun)
        except OutdatedError:
            return None
        except QueueUnavailableError:
            # What is lost may be the answer and not the write: an attempt would have been counted and not made.
            for _ in range(LOOKS_FOR_BEGUN):
                await wait_at_most(RETRY.first, self._stopping)
                with suppress(QueueUnavailableError, QueueFullError):
                    found = await self._find(begun.id)
                    if found is not None and found.call == begun:
                        return found
            raise

    async def _find(self, invocation_id: str) -> Seen | None:
        return await self._records.find(self._settings.tenant, invocation_id, self._settings.function, direct=True)

    def _end_of(self, action: Delivery) -> End:
        """Of a call that is not to be run. One that is over stays as it is."""
        match action:
            case Delivery.CANCEL:
                return lambda call: cancel(call, self._now())
            case Delivery.EXPIRE:
                return lambda call: expire(call, self._now())
            case _:
                return lambda call: bury(call, "AttemptsExhausted", self._now())

    async def _run(self, running: Seen) -> bool:
        """Whether it has come to an end."""
        call = running.call
        try:
            end = await self._call(call)
        except NoAnswerError as error:
            log.warning("call.no_answer", extra={"invocation": call.id, "error": str(error)})
            had_company = self._turns.had_company(call.id)
            back = plan_loss(call, error.loss, self._settings.max_attempts, had_company=had_company)
            if back is not None:
                await self._insist(call, lambda: self._put_back(running, back))
                return False
            end = partial(bury, reason=str(error), now=self._now())
        return await self._insist(call, lambda: self._end(running, end))

    async def _put_back(self, running: Seen, back: PutBack) -> None:
        # Outdated: it was cancelled, or another worker has it. Its next delivery finds that.
        with suppress(OutdatedError):
            waiting = put_back(running.call, is_charged=back.is_charged, is_alone=back.is_alone)
            await self._records.change(running, waiting)

    async def _insist(self, call: Invocation, step: Callable[[], Awaitable[T]]) -> T:
        """Once it has begun. An attempt, and what was computed in it, is not thrown away because NATS is away or full
        for a while."""
        while True:
            try:
                return await step()
            except (QueueUnavailableError, QueueFullError) as error:
                if call.expires_at <= self._now():
                    raise
                log.warning("queue.away", extra={"invocation": call.id, "error": str(error)})
                await asyncio.sleep(RETRY.first)

    async def _call(self, call: Invocation) -> End:
        """How it ends: with an answer, unless its time is over or nobody wants it any more."""
        try:
            payload = await self._insist(call, lambda: self._read_payload(call))
        except MissingBodyError as error:
            return self._fail(f"the payload cannot be read: {error}")
        asked = Call(
            call.id,
            call.function,
            call.attempts,
            call.expires_at,
            call.content_type,
            call.headers,
            call.attributes,
            payload,
        )
        answered = asyncio.Event()
        answering = asyncio.create_task(self._framework.invoke(asked))
        answering.add_done_callback(lambda _: answered.set())
        try:
            unwanted = await self._wait_until_unwanted(call, answered)
            if unwanted is not None:
                await self._framework.cancel(call.id)
                return unwanted
            result = answering.result()
            return await self._insist(call, lambda: self._store(call, result))
        finally:
            answering.cancel()
            await asyncio.wait({answering})

    async def _read_payload(self, call: Invocation) -> Any:
        if call.payload_body is None:
            return call.payload
        return json.loads(await self._bodies.get_payload(call, call.payload_body))

    async def _store(self, call: Invocation, result: InvocationResult) -> End:
        """A large body is stored before the end that refers to it."""
        try:
            content = encode_json(result.body)
        except NotJsonError as error:
            return self._fail(f"the answer is no JSON: {error}")
        if len(content) > LARGEST_BODY:
            # To run it again would only make the same answer again.
            return self._fail(f"the answer is too large: {len(content)} bytes; there is room for {LARGEST_BODY}")
        body: BodyReference | None = None
        if len(content) > INLINE_BODY:
            body = await self._bodies.put_result(call, content)
        return partial(answer, result=result, now=self._now(), result_body=body)

    def _fail(self, error: str) -> End:
        return partial(answer, result=InvocationResult(status_code=500, error=error), now=self._now())

    async def _wait_until_unwanted(self, call: Invocation, answered: asyncio.Event) -> End | None:
        """None: it was answered first. A question to the queue is never cancelled: the client takes that for a
        time-out."""
        while True:
            await wait_at_most(LOOK_SECONDS, answered)
            if answered.is_set():
                return None
            if call.expires_at <= self._now():
                return lambda each: expire(each, self._now())
            with suppress(QueueUnavailableError, QueueFullError):
                seen = await self._find(call.id)
                # None says nothing: a server that is behind may not have it yet.
                if seen is not None and (seen.call.is_over or seen.call.is_cancel_asked):
                    return lambda each: cancel(each, self._now())

    async def _end(self, seen: Seen, end: End) -> bool:
        """The first end that is written stays. What does not fit into the record is left out of it. False: nobody
        knows, as its record is not to be found."""
        smaller = iter((without_the_answer, bare))
        while not seen.call.is_over:
            try:
                await self._records.change(seen, end(seen.call))
                return True
            except TooLargeError as error:
                make_smaller = next(smaller, None)
                if make_smaller is None:
                    log.error("call.unwritable", extra={"invocation": seen.call.id, "error": str(error)})
                    return True
                end = partial(make_smaller, end, str(error))
            except OutdatedError:
                found = await self._find_changed(seen.call.id)
                if found is None:
                    return False
                seen = found
        return True

    async def _find_changed(self, invocation_id: str) -> Seen | None:
        """One that somebody else has changed in this moment. A server that is behind may not have it at all."""
        for _ in range(LOOKS_FOR_CHANGED):
            await asyncio.sleep(OUTDATED_SECONDS)
            if (seen := await self._find(invocation_id)) is not None:
                return seen
        return None
