"""What the queue says of each function, and how many workers that makes. The table is `scaling_plan`."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpu_platform.controller.loop import Key
from gpu_platform.domain.functions import GPUFunctionSpec
from gpu_platform.domain.tenants import tenant_namespace
from gpu_platform.nats.connection import JetStream, obey_cancellation
from gpu_platform.nats.records import follow_wakes
from gpu_platform.nats.streams import Backlog, read_backlog, read_backlogs
from reconciler.functions.scaling_plan import Decision, Demand, Limits, Peak, Workers, plan_scale

SWEEP_SECONDS = 1.0
"""Between two looks at all queues: a wake-up call that was lost costs no more than this."""

GATHER_SECONDS = 0.05
"""After a look, for the calls that come meanwhile: each look is a question to NATS and a pass of the controller. Small
beside the start of a worker."""


@dataclass(frozen=True)
class Memory:
    """Of one function. Lost with the process: then its workers stay for the idle time once more."""

    since: datetime
    backlog: Backlog | None = None
    stuck_since: datetime | None = None
    """Since when calls wait and none was given to a worker."""

    peaks: tuple[Peak, ...] = ()
    wanted: int = 0
    is_settled: bool = False
    """Nobody calls it, and it has its fewest workers: time alone changes nothing."""


class Scaler:
    def __init__(self, now: Callable[[], datetime], on_news: Callable[[Key], None] = lambda _: None) -> None:
        """`on_news` is told of each function that is worth a look."""
        self._now = now
        self._on_news = on_news
        self._memories: dict[Key, Memory] = {}
        self._woken: set[tuple[str, str]] = set()
        self._waking = asyncio.Event()

    async def follow(self, js: JetStream) -> None:
        """For as long as there is a connection. What was known before it is not believed any more."""
        self._memories.clear()
        async with follow_wakes(js, self._wake):
            while True:
                self.note(await read_backlogs(js))
                obey_cancellation()
                await self._answer_wakes(js)

    async def _answer_wakes(self, js: JetStream) -> None:
        """Until the next look at all of them. Each function that is called is looked at alone, and at once, unless
        there was a look just before."""
        ends_at = asyncio.get_running_loop().time() + SWEEP_SECONDS
        while (left := ends_at - asyncio.get_running_loop().time()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._waking.wait()
            except TimeoutError:
                return
            self._waking.clear()
            woken, self._woken = self._woken, set()
            for tenant, function in woken:
                backlog = await read_backlog(js, tenant, function)
                obey_cancellation()
                if backlog is not None:
                    self.note({(tenant, function): backlog})
            await asyncio.sleep(GATHER_SECONDS)

    def plan(self, key: Key, spec: GPUFunctionSpec, workers: Workers) -> Decision:
        """As long as nobody knows what the queue says, as many as there are."""
        memory = self._memories.get(key)
        limits = limits_of(spec)
        if memory is None or memory.backlog is None:
            return Decision(
                min(max(workers.there, limits.min_workers), limits.max_workers), (), "the queue is not known"
            )
        demand = Demand(memory.backlog.waiting, memory.backlog.running, memory.stuck_since)
        decision = plan_scale(demand, workers, memory.peaks, limits, self._now(), since=memory.since)
        is_settled = not memory.backlog.calls and decision.wanted == limits.min_workers
        self._memories[key] = replace(memory, peaks=decision.peaks, wanted=decision.wanted, is_settled=is_settled)
        return decision

    def note(self, backlogs: Mapping[tuple[str, str], Backlog]) -> None:
        """What the queue says, by tenant and function."""
        for (tenant, function), backlog in backlogs.items():
            key = (tenant_namespace(tenant), function)
            known = self._memories.get(key)
            self.take(key, backlog)
            if known is None or known.backlog != backlog or not known.is_settled:
                self._on_news(key)

    def take(self, key: Key, backlog: Backlog) -> None:
        """What it says of one that is being looked at anyway."""
        now = self._now()
        known = self._memories.get(key) or Memory(since=now)
        before = known.backlog
        is_stuck = backlog.waiting > 0 and before is not None and before.given == backlog.given
        stuck_since = (known.stuck_since or now) if is_stuck else (now if backlog.waiting else None)
        self._memories[key] = replace(known, backlog=backlog, stuck_since=stuck_since)

    def forget(self, key: Key) -> None:
        self._memories.pop(key, None)

    def wanted(self, key: Key) -> int:
        """As of the last decision."""
        memory = self._memories.get(key)
        return memory.wanted if memory else 0

    def _wake(self, tenant: str, function: str) -> None:
        self._woken.add((tenant, function))
        self._waking.set()


def limits_of(spec: GPUFunctionSpec) -> Limits:
    idle = timedelta(seconds=spec.idle_timeout_seconds)
    return Limits(spec.min_workers, max(spec.max_workers, spec.min_workers), spec.concurrency, idle)
