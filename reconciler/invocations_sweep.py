"""The loop that keeps the promise when a worker, a message or the one who accepted a call is lost."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

from gpu_platform.adapters.queue.cancellation import obey_cancellation
from gpu_platform.domain.invocations import Invocation
from gpu_platform.domain.sweep_plan import QUEUE_GRACE, Sweep, plan_sweep
from gpu_platform.kube import KubeError
from gpu_platform.nats.connection import JetStream
from gpu_platform.nats.errors import QueueFullError, QueueUnavailableError
from gpu_platform.nats.listing import Listing, Queued
from gpu_platform.nats.records import Records
from reconciler.invocations.apply import apply_sweep
from reconciler.invocations.bodies import BodiesSweep
from reconciler.invocations.functions import FunctionExists
from reconciler.invocations.observe import OpenCalls, key_of, key_of_message

log = logging.getLogger(__name__)

SWEEPS_PER_GRACE = 6
QUEUE_LOOKS_PER_GRACE = 2
"""Of the whole queue."""

LEFTOVER = timedelta(seconds=60)
"""How long a message may be in the queue without a call that is not over: its worker may be about to say so."""

AT_ONCE = 16


class InvocationsSweep:
    def __init__(
        self,
        js: JetStream,
        function_exists: FunctionExists,
        retention: timedelta,
        now: Callable[[], datetime],
        *,
        queue_grace: timedelta = QUEUE_GRACE,
    ) -> None:
        """`retention`: how long a record is kept after its end. `queue_grace`: after which an invocation that is not in
        the queue is queued again."""
        self._records = Records(js, retention)
        self._listing = Listing(js)
        self._open = OpenCalls(self._listing)
        self._bodies = BodiesSweep(js, self._records, self._open, self._may_exist)
        self._function_exists = function_exists
        self._now = now
        self._queue_grace = queue_grace
        self._queue_read_at: float | None = None

    async def run(self) -> None:
        """For ever. What cannot be done now is done the next time."""
        while True:
            try:
                await self.sweep()
            except (QueueUnavailableError, QueueFullError) as error:
                log.warning("invocations.not_swept", extra={"error": str(error)})
            except Exception:
                log.exception("invocations.not_swept")
            obey_cancellation()
            await asyncio.sleep(self._queue_grace.total_seconds() / SWEEPS_PER_GRACE)

    async def sweep(self) -> Counter[Sweep]:
        """Once: what was done, and how often."""
        await self._open.follow()
        queue = await self._read_queue()
        done = await self._apply(await self._plan(queue))
        if queue is not None:
            await self._remove_leftovers(queue)
        await self._bodies.sweep(self._now())
        if done:
            log.info("invocations.swept", extra={action.name: count for action, count in done.items()})
        return done

    async def _read_queue(self) -> tuple[Queued, ...] | None:
        """None: it was looked at a moment ago."""
        now, pause = time.monotonic(), self._queue_grace.total_seconds() / QUEUE_LOOKS_PER_GRACE
        if self._queue_read_at is not None and now - self._queue_read_at < pause:
            return None
        self._queue_read_at = now
        return await self._listing.read_queue()

    async def _plan(self, queue: tuple[Queued, ...] | None) -> list[tuple[Invocation, Sweep]]:
        queued = frozenset(map(key_of_message, queue)) if queue is not None else None
        exists: dict[tuple[str, str], bool] = {}
        planned: list[tuple[Invocation, Sweep]] = []
        for call in self._open.calls():
            function = (call.tenant, call.function)
            if function not in exists:
                exists[function] = await self._may_exist(*function)
            # While nobody has looked, it counts as being there.
            is_in_queue = queued is None or key_of(call) in queued
            action = plan_sweep(
                call,
                is_in_queue=is_in_queue,
                function_exists=exists[function],
                now=self._now(),
                queue_grace=self._queue_grace,
            )
            if action is not Sweep.NOTHING:
                planned.append((call, action))
        return planned

    async def _may_exist(self, tenant: str, function: str) -> bool:
        """While Kubernetes does not say that it is gone, it is there."""
        try:
            return await self._function_exists(tenant, function)
        except KubeError as error:
            log.warning(
                "invocations.function_unknown", extra={"tenant": tenant, "function": function, "error": str(error)}
            )
            return True

    async def _apply(self, planned: list[tuple[Invocation, Sweep]]) -> Counter[Sweep]:
        slots = asyncio.Semaphore(AT_ONCE)
        done: Counter[Sweep] = Counter()

        async def apply(call: Invocation, action: Sweep) -> None:
            async with slots:
                if await apply_sweep(self._records, call, action, self._now()):
                    done[action] += 1
                elif await self._records.find(call.tenant, call.id, call.function) is None:
                    self._open.forget(call)

        # All of them, also after one has failed: they are questions to NATS, which must not be cancelled.
        ends = await asyncio.gather(*(apply(*each) for each in planned), return_exceptions=True)
        failures = [(call, end) for (call, _), end in zip(planned, ends, strict=True) if end is not None]
        if failures:
            _tell(failures)
        return done

    async def _remove_leftovers(self, queue: tuple[Queued, ...]) -> None:
        """Messages whose call is over, or was forgotten long ago. They would only wake workers."""
        old = self._now() - LEFTOVER
        for queued in queue:
            if queued.queued_at > old or key_of_message(queued) in self._open:
                continue
            seen = await self._records.find(queued.tenant, queued.invocation_id, queued.function)
            if seen is None or seen.call.is_over:
                await self._listing.remove_queued(queued)
                log.info("invocations.leftover_removed", extra={"invocation": queued.invocation_id})


def _tell(failures: list[tuple[Invocation, BaseException]]) -> None:
    """The first of them stands for the others: while NATS is away, there is one for each call."""
    call, failure = failures[0]
    if not isinstance(failure, Exception):
        raise failure
    log.warning(
        "invocations.some_not_swept",
        extra={"calls": len(failures), "tenant": call.tenant, "invocation": call.id, "error": str(failure)},
        exc_info=None if isinstance(failure, QueueUnavailableError | QueueFullError) else failure,
    )
