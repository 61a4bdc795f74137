"""The audit controller: has Pulumi compare every stack with the cluster, once per period, and doubts those that differ.

The index says what was recorded; the audit finds out whether the backend still says so. It writes nothing, so it needs
no Lease. Of several workers each audits every stack: what one of them finds, it mends.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor
from datetime import timedelta

from gpu_platform.controller.loop import Done, Key, RequeueAfter, Result, Trigger
from gpu_platform.domain.stack_plan import Action, plan_stack
from gpu_platform.domain.stacks import StackAddress
from stacks.runner import RunnerStoppedError, StackFailedError, StackRunner
from stacks.worker.metrics import WorkerMetrics
from stacks.worker.observe import StackWorld, address_of_key, key_of, keys_of_lease

log = logging.getLogger(__name__)

ACTION = "audit"


class AuditController:
    name = "audit"

    def __init__(
        self,
        world: StackWorld,
        runner: StackRunner,
        executor: Executor,
        period: timedelta,
        on_difference: Callable[[StackAddress], None],
        metrics: WorkerMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._world = world
        self._runner = runner
        self._executor = executor
        self._period = period.total_seconds()
        self._on_difference = on_difference
        self._metrics = metrics
        self._clock = clock
        self._due_at: dict[Key, float] = {}

    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(self._world.leases, keys_of_lease),)

    async def reconcile(self, project: str, stack: str) -> Result:
        address = address_of_key(project, stack)
        key = key_of(address)
        if not self._is_settled(address):
            # It is about to be recorded or removed; the write on its Lease brings the next look.
            self._due_at.pop(key, None)
            return Done()
        now = self._clock()
        due_at = self._due_at.setdefault(key, now + first_delay(address, self._period))
        if due_at > now:
            return RequeueAfter(timedelta(seconds=due_at - now), "not yet")
        await self._audit(address)
        self._due_at[key] = self._clock() + self._period
        return RequeueAfter(timedelta(seconds=self._period), "looks again and again")

    async def _audit(self, address: StackAddress) -> None:
        began_at = self._clock()
        try:
            is_same = await asyncio.get_running_loop().run_in_executor(self._executor, self._runner.audit, address)
        except RunnerStoppedError:
            return
        except StackFailedError as error:
            self._metrics.count_failure(ACTION, error.fault)
            self._metrics.count_audit("failed")
            log.warning("audit.failed", extra={"stack": address.lease, "fault": error.fault, "error": error.message})
            return
        self._metrics.count_run(ACTION, self._clock() - began_at)
        self._metrics.count_audit("same" if is_same else "different")
        # What changed meanwhile was not compared with what it is now, and is recorded anyway.
        if not is_same and self._is_settled(address):
            log.warning("audit.different", extra={"stack": address.lease})
            self._on_difference(address)

    def _is_settled(self, address: StackAddress) -> bool:
        records = self._world.observe(address)
        is_recorded = records.stack is not None and records.stack.recorded is not None
        return records.intent is not None and is_recorded and plan_stack(records) is Action.NOTHING


def first_delay(address: StackAddress, period: float) -> float:
    """Somewhere within the period, always at the same place: after a start not all are due at once."""
    digest = hashlib.sha256(address.lease.encode()).digest()
    return period * int.from_bytes(digest[:4]) / 2**32
