"""The loop that keeps the promise when a worker, a message or the process that accepted an invocation is lost.

It follows the invocations that are not over and the queue, ends or queues again what was lost (the table is
`domain/invocation_plan`), and deletes bodies that no invocation needs, where the process that should have done it died
or came too early:

| bodies                                          | deleted                                                        |
| ----------------------------------------------- | -------------------------------------------------------------- |
| of a cancelled invocation                       | when its end is seen; a worker's late result at the next look  |
| payloads of a deleted function                  | at the next look; results stay for their callers               |
| of an invocation that was deleted or forgotten  | `ORPHAN_GRACE` after the first look that found no record       |
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta

from gpu_platform.domain.invocation_plan import QUEUE_GRACE, BodyRetention, Sweep, last_step_at, plan_bodies, plan_sweep
from gpu_platform.domain.invocations import Invocation, InvocationState, call_off, expire, without_contents
from gpu_platform.domain.tenants import tenant_namespace
from gpu_platform.kube import KubeError
from gpu_platform.kube.informer import ObjectCache
from gpu_platform.kube.paths import GPU_FUNCTIONS
from gpu_platform.kube.requests import ObjectClient, find
from gpu_platform.nats.bodies import REQUEST, delete_bodies
from gpu_platform.nats.connection import JetStream, obey_cancellation
from gpu_platform.nats.errors import OutdatedError, QueueFullError, QueueUnavailableError, TooLargeError
from gpu_platform.nats.listing import EVERYBODY, Listing, Queued
from gpu_platform.nats.records import Records, Seen

FunctionExists = Callable[[str, str], Awaitable[bool]]
"""By tenant and name."""

Key = tuple[str, str, str]
"""Tenant, id and function: a worker can write records of its own function, with any id."""

log = logging.getLogger(__name__)

LOOK_SECONDS = 60.0
"""Between two looks at all bodies."""

AT_ONCE = 16
SWEEPS_PER_GRACE = 6

QUEUE_LOOKS_PER_GRACE = 2
"""Of the whole queue."""

LEFTOVER = timedelta(seconds=60)
"""How long a message may be in the queue without a call that is not over: its worker may be about to say so."""

END_OF: Mapping[Sweep, Callable[[Invocation, datetime], Invocation]] = {
    Sweep.CANCEL_DELETED: lambda call, now: call_off(call, "FunctionDeleted", now),
    Sweep.CANCEL: lambda call, now: call_off(call, "Cancelled", now),
    Sweep.EXPIRE: expire,
}


def function_lookup(cache: ObjectCache, client: ObjectClient) -> FunctionExists:
    """One that memory does not know may be new: it is looked up before its calls are ended."""

    async def exists(tenant: str, name: str) -> bool:
        namespace = tenant_namespace(tenant)
        function = cache.get(namespace, name) or await find(client, GPU_FUNCTIONS, name, namespace)
        return function is not None and "deletionTimestamp" not in function["metadata"]

    return exists


class OpenCalls:
    """In memory; what has changed since the last look is read, and nothing else."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._sequence = 0
        self._calls: dict[Key, Invocation] = {}
        self._cancelled: set[Key] = set()

    def __contains__(self, key: Key) -> bool:
        return key in self._calls

    def calls(self) -> tuple[Invocation, ...]:
        return tuple(self._calls.values())

    def forget(self, call: Invocation) -> None:
        self._calls.pop(key_of(call), None)

    def take_cancelled(self) -> tuple[Key, ...]:
        """Returns, once, the cancelled invocations that had bodies beside their records."""
        taken, self._cancelled = tuple(self._cancelled), set()
        return taken

    async def follow(self) -> None:
        """Up to now."""
        if await self._listing.find_end() < self._sequence:
            # The stream was created again, or put back from a backup: nothing that is known counts.
            self._sequence = 0
            self._calls.clear()
            self._cancelled.clear()
        while True:
            page = await self._listing.read_page(EVERYBODY, self._sequence)
            for seen in page.seen:
                self._take(seen)
            self._sequence = page.next_sequence
            if page.is_last:
                return

    def _take(self, seen: Seen) -> None:
        if seen.call.is_over:
            self.forget(seen.call)
            if seen.call.state is InvocationState.CANCELLED and seen.call.payload_body is not None:
                self._cancelled.add(key_of(seen.call))
        else:
            self._calls[key_of(seen.call)] = seen.call


def key_of(call: Invocation) -> Key:
    return call.tenant, call.id, call.function


def key_of_message(queued: Queued) -> Key:
    """A message of another function does not run a call."""
    return queued.tenant, queued.invocation_id, queued.function


async def apply_sweep(records: Records, call: Invocation, action: Sweep, now: datetime) -> bool:
    """Whether it was done; if not, somebody else was faster, and the next look shows what is left to do."""
    seen = await records.find(call.tenant, call.id, call.function)
    if seen is None or seen.call.is_over or last_step_at(seen.call) != last_step_at(call):
        return False
    if action is Sweep.ENQUEUE:
        await records.enqueue(seen.call)
        return True
    try:
        await _end(records, seen, action, now)
    except OutdatedError:
        return False
    await records.unqueue(seen.call)
    return True


async def _end(records: Records, seen: Seen, action: Sweep, now: datetime) -> None:
    end = END_OF[action]
    try:
        await records.change(seen, end(seen.call, now))
    except TooLargeError:
        # An end without its contents is better than none.
        await records.change(seen, end(without_contents(seen.call), now))


class BodiesSweep:
    def __init__(
        self, js: JetStream, records: Records, open_calls: OpenCalls, function_may_exist: FunctionExists
    ) -> None:
        self._js = js
        self._records = records
        self._open = open_calls
        self._function_may_exist = function_may_exist
        self._looked_at: float | None = None
        self._kept: dict[Key, datetime] = {}
        """Invocations that are over and keep their bodies, and until when: an end never changes."""

        self._orphans: dict[Key, tuple[datetime, int]] = {}
        """Bodies without a record: since when, and the sequence below which they are stored."""

    async def sweep(self, now: datetime) -> int:
        """Returns of how many invocations it deleted the bodies. Call it after `OpenCalls.follow`."""
        cancelled = self._open.take_cancelled()
        slots = asyncio.Semaphore(AT_ONCE)

        async def delete(key: Key) -> None:
            async with slots:
                await self._delete(key)

        await asyncio.gather(*map(delete, cancelled))
        if self._looked_at is not None and time.monotonic() - self._looked_at < LOOK_SECONDS:
            return len(cancelled)
        self._looked_at = time.monotonic()
        return len(cancelled) + await self._look(now)

    async def _look(self, now: datetime) -> int:
        stored = await Listing(self._js).read_bodies()
        owners = {(tenant, invocation_id, function) for tenant, function, invocation_id in stored.owners}
        await self._delete_payloads_of_gone({(tenant, function) for tenant, _, function in owners})
        self._kept = {key: until for key, until in self._kept.items() if key in owners and until > now}
        self._orphans = {key: orphan for key, orphan in self._orphans.items() if key in owners}
        deleted = 0
        for key in sorted(owners):
            if key not in self._open and key not in self._kept:
                deleted += await self._judge(key, stored.next_sequence, now)
        if deleted:
            log.info("invocations.bodies_deleted", extra={"invocations": deleted})
        return deleted

    async def _judge(self, key: Key, next_sequence: int, now: datetime) -> bool:
        """Whether it deleted them."""
        tenant, invocation_id, function = key
        seen = await self._records.find(tenant, invocation_id, function)
        if seen is None:
            since, below = self._orphans.setdefault(key, (now, next_sequence))
        else:
            self._orphans.pop(key, None)
            since, below = None, None
        match plan_bodies(seen.call if seen else None, since, now):
            case BodyRetention.DELETE:
                # What was stored since may be of a new invocation under this id.
                await self._delete(key, below)
                return True
            case BodyRetention.KEEP_FOR_CALLER if seen is not None:
                self._kept[key] = (seen.call.finished_at or now) + self._records.retention
        return False

    async def _delete(self, key: Key, below: int | None = None) -> None:
        tenant, invocation_id, function = key
        await delete_bodies(self._js, tenant, function, invocation_id, below=below)

    async def _delete_payloads_of_gone(self, functions: set[tuple[str, str]]) -> None:
        """No invocation of a deleted function can be retried."""
        for tenant, function in sorted(functions):
            if not await self._function_may_exist(tenant, function):
                await delete_bodies(self._js, tenant, function, part=REQUEST)


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
