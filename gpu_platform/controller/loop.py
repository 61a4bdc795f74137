"""Runs one controller: changes become keys, keys become passes, failures become later passes.

The only place of the daemon that catches all that a controller raises.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Protocol

from gpu_platform.controller.leader_election import NotLeaderError
from gpu_platform.controller.metrics import Metrics
from gpu_platform.controller.work_queue import WorkQueue, one_lane
from gpu_platform.domain.json_text import Json
from gpu_platform.kube.errors import AlreadyExistsError, ConflictError, KubeError, NotFoundError, UnreachableError
from gpu_platform.kube.informer import ObjectCache

log = logging.getLogger(__name__)

Key = tuple[str, str]
"""Namespace ("" for cluster-scoped kinds) and name."""

PAUSE_SECONDS = 1.0
"""After a write was refused because somebody else may lead."""


@dataclass(frozen=True)
class Done:
    """Nothing more to do until something changes."""


@dataclass(frozen=True)
class RequeueAfter:
    """Look again after this delay, also when nothing changes until then."""

    delay: timedelta
    why: str
    """For the log: what is waited for."""


Result = Done | RequeueAfter


class Controller(Protocol):
    @property
    def name(self) -> str: ...

    async def reconcile(self, namespace: str, name: str) -> Result:
        """Makes the world right for this key, whether or not an object of that name exists."""


@dataclass(frozen=True)
class Trigger:
    """A change of an object in this cache is a reason to look at these keys again."""

    cache: ObjectCache
    keys_of: Callable[[Json], Iterable[Key]]


class KeyFeed:
    """Keys to look at for another reason than a change of an object. What is sent while no loop runs is dropped: a loop
    begins with every object."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Key], None]] = []

    def on_key(self, listener: Callable[[Key], None]) -> None:
        self._listeners.append(listener)

    def send(self, key: Key) -> None:
        for listener in self._listeners:
            listener(key)


class ControllerLoop:
    def __init__(
        self,
        controller: Controller,
        triggers: Sequence[Trigger],
        *,
        workers: int,
        metrics: Metrics,
        lane_of: Callable[[Key], Hashable] = one_lane,
        feed: KeyFeed | None = None,
    ) -> None:
        """The lanes of keys take turns."""
        self._controller = controller
        self._triggers = triggers
        self._workers = workers
        self._metrics = metrics
        self._lane_of = lane_of
        self._queue: WorkQueue[Key] | None = None
        self._stopped = False
        self._ending = asyncio.Event()
        self._busy: set[int] = set()
        for trigger in triggers:
            trigger.cache.on_change(partial(self._take_change, trigger))
        if feed is not None:
            feed.on_key(self.look_again)
        metrics.follow_queue(controller.name, lambda: len(self._queue or ()))

    async def run(self) -> None:
        """Until `stop` or cancellation. Begins with every object there is; so it does again when it was told that this
        process does not lead. If that is true, the elector ends it meanwhile: if it ended by itself, one refused write
        would leave everything undone for as long as the Lease is renewed."""
        while True:
            await self._run_term()
            if self._stopped:
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def _run_term(self) -> None:
        for trigger in self._triggers:
            await trigger.cache.wait_synced()
        queue = WorkQueue[Key](lane_of=self._lane_of)
        self._queue = queue
        if not self._stopped:
            self._ending.clear()
        try:
            for trigger in self._triggers:
                for each in trigger.cache.objects():
                    self._take_change(trigger, None, each)
            await self._run_workers(queue)
        finally:
            self._queue = None
            queue.close()

    def stop(self) -> None:
        """For good: take no more keys; `run` ends when the passes under way have ended."""
        self._stopped = True
        self._ending.set()

    def look_again(self, key: Key) -> None:
        """Something other than a change of an object is a reason to look at this key."""
        if self._queue is not None:
            self._queue.add(key)

    def _take_change(self, trigger: Trigger, old: Json | None, new: Json | None) -> None:
        """Both objects' keys: an object that moved from one owner to another concerns both."""
        if self._queue is None:
            return
        versions = (new,) if old is new else (old, new)
        try:
            for key in {key for each in versions if each is not None for key in trigger.keys_of(each)}:
                self._queue.add(key)
        except Exception:
            # One strange object must not stop the cache from following all the others.
            log.exception("change.unreadable", extra={"controller": self._controller.name})

    async def _run_workers(self, queue: WorkQueue[Key]) -> None:
        async with asyncio.TaskGroup() as group:
            workers = {
                number: group.create_task(self._work(queue, number), name=f"{self._controller.name} {number}")
                for number in range(self._workers)
            }
            await self._ending.wait()
            for number in workers.keys() - self._busy:
                workers[number].cancel()

    async def _work(self, queue: WorkQueue[Key], number: int) -> None:
        while not self._ending.is_set():
            key = await queue.get()
            self._busy.add(number)
            try:
                await self._pass(queue, key)
            finally:
                self._busy.discard(number)
                queue.done(key)

    async def _pass(self, queue: WorkQueue[Key], key: Key) -> None:
        started_at = time.perf_counter()
        outcome = await self._attempt(queue, key)
        self._metrics.count_pass(self._controller.name, outcome, time.perf_counter() - started_at)

    async def _attempt(self, queue: WorkQueue[Key], key: Key) -> str:
        fields = {"controller": self._controller.name, "namespace": key[0], "object": key[1]}
        try:
            result = await self._controller.reconcile(*key)
        except NotLeaderError:
            # Whoever leads now does it.
            self._ending.set()
            return "not_leader"
        except (AlreadyExistsError, ConflictError, NotFoundError) as error:
            # The world moved on between looking and writing: look again.
            log.debug("pass.outdated", extra=fields | {"error": str(error)})
            queue.add_failed(key)
            return "outdated"
        except Exception as error:
            queue.add_failed(key)
            if _is_temporary(error):
                log.warning("pass.unreachable", extra=fields | {"error": str(error)})
                return "unreachable"
            log.exception("pass.failed", extra=fields)
            return "failed"
        queue.forget(key)
        match result:
            case RequeueAfter(delay, why):
                log.debug("pass.waits", extra=fields | {"seconds": delay.total_seconds(), "why": why})
                queue.add_after(key, delay)
                return "waits"
            case Done():
                return "done"


def _is_temporary(error: Exception) -> bool:
    """Whether the API server is away, or asks for patience (429), or has trouble of its own (5xx)."""
    match error:
        case UnreachableError():
            return True
        case KubeError(status=status):
            return status == 429 or status >= 500
    return False
