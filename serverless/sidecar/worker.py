"""Takes calls from the queue, one per free slot, and brings each to its end: record first, acknowledgement last."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from gpu_platform.adapters.backoff import Backoff
from gpu_platform.adapters.fault_points import pass_point
from gpu_platform.adapters.queue.connection import JetStream
from gpu_platform.adapters.queue.deliveries import Delivered, open_pull
from gpu_platform.adapters.queue.errors import OutdatedError, QueueUnavailableError, TooLargeError
from gpu_platform.adapters.queue.records import Records, Seen
from gpu_platform.domain.delivery_plan import Delivery, plan_delivery
from gpu_platform.domain.invocations import Invocation, InvocationResult, answer, begin, bury, cancel, expire
from serverless.framework.calls import Call
from serverless.sidecar.framework_client import FrameworkClient, NoAnswerError

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""Between two looks at whether a running call is still wanted, or whether the framework is ready."""

RETRY = Backoff(first=1.0, longest=60.0)

End = Callable[[Invocation], Invocation]


@dataclass(frozen=True)
class WorkerSettings:
    tenant: str
    function: str
    name: str
    concurrency: int
    max_attempts: int
    ack_wait: timedelta


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
        self._framework = framework
        self._settings = settings
        self._now = now
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Take no more calls; `run` ends when those under way have ended."""
        self._stopping.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._settings.concurrency):
                group.create_task(self._serve())

    async def _serve(self) -> None:
        """One slot."""
        pull = await open_pull(self._js, self._settings.tenant, self._settings.function)
        while not self._stopping.is_set():
            if not await self._framework.is_ready():
                # Not begun, or begun again after it died: a call that it cannot take would only lose an attempt.
                await asyncio.sleep(LOOK_SECONDS)
                continue
            try:
                taken = await pull.take()
                if taken is not None:
                    await self._bring_to_an_end(taken)
            except QueueUnavailableError as error:
                # Whatever was taken stays in the queue, and comes again.
                log.warning("queue.away", extra={"error": str(error)})
                await asyncio.sleep(RETRY.first)

    async def _bring_to_an_end(self, taken: Delivered) -> None:
        seen = await self._records.find(self._settings.tenant, taken.invocation_id)
        action = plan_delivery(seen.call if seen else None, taken.number, self._settings.max_attempts, self._now())
        if seen is None or action is Delivery.DROP:
            await taken.drop()
            return
        if action is Delivery.RUN:
            try:
                running = await self._records.change(
                    seen, begin(seen.call, self._settings.name, taken.number, self._now())
                )
            except OutdatedError:
                # Cancelled in this moment, or another worker has it: look again.
                await taken.give_back(LOOK_SECONDS)
                return
            pass_point("sidecar.begun")
            if not await self._run(taken, running):
                await taken.give_back(RETRY.delay(taken.number))
                return
        else:
            await self._end(seen, self._end_of(action))
        pass_point("sidecar.ended")
        await taken.finish()

    def _end_of(self, action: Delivery) -> End:
        """Of a call that is not to be run. One that is over stays as it is."""
        match action:
            case Delivery.CANCEL:
                return lambda call: cancel(call, self._now())
            case Delivery.EXPIRE:
                return lambda call: expire(call, self._now())
            case _:
                return lambda call: bury(call, "AttemptsExhausted", self._now())

    async def _run(self, taken: Delivered, running: Seen) -> bool:
        """Whether it has come to an end."""
        call = running.call
        try:
            async with self._kept(taken):
                end = await self._call(call)
        except NoAnswerError as error:
            log.warning("call.no_answer", extra={"invocation": call.id, "error": str(error)})
            if call.attempts < self._settings.max_attempts:
                return False
            end = partial(bury, reason=str(error), now=self._now())
        await self._end(running, end)
        return True

    async def _call(self, call: Invocation) -> End:
        """How it ends: with an answer, unless its time is over or nobody wants it any more."""
        asked = Call(
            call.id,
            call.function,
            call.attempts,
            call.expires_at,
            call.content_type,
            call.headers,
            call.attributes,
            call.payload,
        )
        answered = asyncio.Event()
        answering = asyncio.create_task(self._framework.invoke(asked))
        answering.add_done_callback(lambda _: answered.set())
        try:
            unwanted = await self._wait_until_unwanted(call, answered)
            if unwanted is not None:
                await self._framework.cancel(call.id)
                return unwanted
            result: InvocationResult = answering.result()
            return lambda each: answer(each, result, self._now())
        finally:
            answering.cancel()
            await asyncio.wait({answering})

    async def _wait_until_unwanted(self, call: Invocation, answered: asyncio.Event) -> End | None:
        """None: it was answered first. A question to the queue is never cancelled: the client takes that for a
        time-out."""
        while not answered.is_set():
            if call.expires_at is not None and call.expires_at <= self._now():
                return lambda each: expire(each, self._now())
            with suppress(QueueUnavailableError):
                seen = await self._records.find(call.tenant, call.id)
                if seen is None or seen.call.is_over or seen.call.is_cancel_asked:
                    return lambda each: cancel(each, self._now())
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await answered.wait()
        return None

    async def _end(self, seen: Seen | None, end: End) -> None:
        """The first end that is written stays."""
        while seen is not None and not seen.call.is_over:
            try:
                await self._records.change(seen, end(seen.call))
                return
            except TooLargeError as error:
                # To run it again would only make the same answer again.
                too_large = InvocationResult(status_code=500, error=f"the answer is too large: {error}")
                end = partial(answer, result=too_large, now=self._now())
            except OutdatedError:
                seen = await self._records.find(seen.call.tenant, seen.call.id)

    @asynccontextmanager
    async def _kept(self, taken: Delivered) -> AsyncIterator[None]:
        """Tells the queue again and again that the call is being worked on."""

        async def tell() -> None:
            while True:
                await asyncio.sleep(self._settings.ack_wait.total_seconds() / 3)
                await taken.keep()

        telling = asyncio.create_task(tell())
        try:
            yield
        finally:
            telling.cancel()
            with suppress(asyncio.CancelledError):
                await telling
