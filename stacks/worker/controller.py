"""The stacks controller: looks at the three records of one object, and has Pulumi do what its row says."""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from gpu_platform.clock import Backoff
from gpu_platform.controller.loop import Done, Key, RequeueAfter, Result, Trigger
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stack_plan import Action, Records, plan_stack
from gpu_platform.domain.stacks import Intent, StackAddress, StackRecord
from gpu_platform.kube.requests import ObjectClient
from gpu_platform.process import pass_point
from gpu_platform.store.stack_leases import Holder, holder_of, look, release_lease, remove_lease, take_lease
from stacks.runner import Fault, RunnerStoppedError, StackFailedError, StackRunner
from stacks.runner.programs import build_program
from stacks.worker.lease import Held, Terms, build_record, clear_away, healing, renewed
from stacks.worker.metrics import WorkerMetrics
from stacks.worker.observe import (
    StackWorld,
    address_of_key,
    key_of,
    keys_of_lease,
    keys_of_object,
    keys_of_operation,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

PULUMI_ACTIONS = (Action.RECORD, Action.PUT_BACK, Action.REMOVE)

RETRY = Backoff(first=0.5, longest=60.0)


@dataclass(frozen=True)
class Retry:
    """A stack whose last run failed: not before this time, unless something else is wanted by then."""

    wanted: tuple[Action, str]
    failures: int
    due_at: float


class StacksController:
    name = "stacks"

    def __init__(
        self,
        world: StackWorld,
        client: ObjectClient,
        runner: StackRunner,
        executor: Executor,
        holder: Holder,
        lease_seconds: int,
        longest_run: float,
        metrics: WorkerMetrics,
        now: Callable[[], datetime],
    ) -> None:
        self._world = world
        self._client = client
        self._runner = runner
        self._executor = executor
        self._holder = holder
        self._lease_seconds = lease_seconds
        self._longest_run = longest_run
        self._metrics = metrics
        self._now = now
        self._terms = Terms(holder)
        self._retries: dict[Key, Retry] = {}
        self._doubted: set[Key] = set()
        """Stacks that do not say what the index says of them: recorded once more."""

        self._locked: dict[StackAddress, tuple[str, float]] = {}
        """Stacks that somebody else's Pulumi has locked: by which lock, and since when we know."""

    def triggers(self) -> tuple[Trigger, ...]:
        return (
            *(Trigger(cache, keys_of_object) for cache in self._world.objects.values()),
            Trigger(self._world.leases, keys_of_lease),
            Trigger(self._world.operations, keys_of_operation),
        )

    def doubt(self, address: StackAddress) -> None:
        self._doubted.add(key_of(address))

    async def reconcile(self, project: str, stack: str) -> Result:
        address = address_of_key(project, stack)
        key = key_of(address)
        records = self._world.observe(address)
        action = self._plan(key, records)
        if action not in PULUMI_ACTIONS:
            self._metrics.note_settled(key)
            self._retries.pop(key, None)
            self._locked.pop(address, None)
            self._terms.forget(address.lease)
            self._doubted.discard(key)
            if records.item is None and records.stack is None:
                # Another worker may have removed what this one has recorded.
                self._runner.forget(address)
            return Done()
        self._metrics.note_due(key)
        wanted = action, _wanted_of(records)
        retry = self._retries.get(key)
        if retry is not None and retry.wanted == wanted and (left := retry.due_at - time.monotonic()) > 0:
            return RequeueAfter(timedelta(seconds=left), "its last run failed")
        lease = self._world.find_lease(address)
        if (left := self._terms.seconds_left(lease)) > 0:
            return RequeueAfter(timedelta(seconds=left), "another worker has it")
        if action is not Action.RECORD and records.stack is not None:
            records = await look(self._client, address, records.stack)
            if plan_stack(records) is not action:
                return RequeueAfter(timedelta(seconds=RETRY.first), "the cache is behind")
        return await self._act(address, action, records, lease, wanted)

    def _plan(self, key: Key, records: Records) -> Action:
        action = plan_stack(records)
        is_doubted = records.intent is not None and key in self._doubted
        return Action.RECORD if action is Action.NOTHING and is_doubted else action

    async def _act(
        self, address: StackAddress, action: Action, records: Records, lease: Json | None, wanted: tuple[Action, str]
    ) -> Result:
        record = _record_to_hold(address, records)
        stale = lease if lease is not None and holder_of(lease) not in ("", self._holder.identity) else None
        taken = await take_lease(self._client, lease, record, self._holder, self._lease_seconds, self._now())
        pass_point("worker.lease-taken")
        on_loss = partial(self._runner.interrupt, address)
        async with renewed(self._client, taken, self._lease_seconds, self._now, on_loss) as held:
            began_at = time.monotonic()
            try:
                if stale is not None:
                    await self._in_thread(partial(clear_away, self._runner, address, holder_of(stale)))
                recorded = await self._run(address, action, records)
                pass_point("worker.pulumi-done")
            except RunnerStoppedError:
                await self._release(held, record)
                return Done()
            except StackFailedError as error:
                return await self._note_failure(held, record, wanted, error)
            except OSError as error:
                failure = StackFailedError(Fault.OTHER, f"the worker's own files: {error}")
                return await self._note_failure(held, record, wanted, failure)
            self._metrics.count_run(action.name.lower(), time.monotonic() - began_at)
        self._retries.pop(key_of(address), None)
        self._doubted.discard(key_of(address))
        if held.is_lost:
            log.warning("stack.superseded", extra={"stack": address.lease, "action": action.name})
            return RequeueAfter(timedelta(seconds=RETRY.first), "somebody else took it over")
        if recorded is None:
            await remove_lease(self._client, held.lease)
        else:
            await release_lease(self._client, held.lease, recorded, self._now())
        pass_point("worker.index-written")
        log.info("stack.done", extra={"stack": address.lease, "action": action.name})
        # The echo of the write on the Lease brings the next look.
        return Done()

    async def _run(self, address: StackAddress, action: Action, records: Records) -> StackRecord | None:
        """What is recorded now; None: the stack is gone."""
        if action is Action.REMOVE:
            await self._in_thread(lambda: self._healing(address, lambda: self._runner.remove(address)))
            return None
        intent = _intent_of(records)
        program = build_program(intent)
        is_doubted = key_of(address) in self._doubted
        if is_doubted:
            # The runner may believe that it is there.
            self._runner.forget(address)
        refresh = is_doubted or action is Action.PUT_BACK
        result = await self._in_thread(
            lambda: self._healing(address, lambda: self._runner.record(address, program, refresh=refresh))
        )
        return build_record(intent, result, self._now(), result.outputs.get("uid"))

    def _healing(self, address: StackAddress, run: Callable[[], T]) -> T:
        """Once more, when the stack was locked by a process that is provably gone: on this host, or because the very
        same lock, which the message names, has outlived the longest run while no other worker had the Lease."""

        def heal(error: StackFailedError) -> bool:
            lock, since = self._locked.get(address, ("", 0.0))
            if lock != error.message:
                since = time.monotonic()
                self._locked[address] = error.message, since
            is_over = time.monotonic() - since > self._lease_seconds + self._longest_run
            return self._runner.heal_lock(address, lease_expired=is_over)

        return healing(run, heal)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def _note_failure(
        self, held: Held, record: StackRecord, wanted: tuple[Action, str], error: StackFailedError
    ) -> Result:
        action = wanted[0].name.lower()
        self._metrics.count_failure(action, error.fault)
        key = key_of(record.address)
        last = self._retries.get(key)
        failures = last.failures + 1 if last is not None and last.wanted == wanted else 1
        delay = RETRY.delay(failures)
        self._retries[key] = Retry(wanted, failures, time.monotonic() + delay)
        fields = {"stack": record.address.lease, "action": action, "fault": error.fault, "error": error.message}
        log.warning("stack.failed", extra=fields)
        await self._release(held, replace(record, error=error.message, failures=failures))
        return RequeueAfter(timedelta(seconds=delay), error.message)

    async def _release(self, held: Held, record: StackRecord) -> None:
        if not held.is_lost:
            await release_lease(self._client, held.lease, record, self._now())


def _intent_of(records: Records) -> Intent:
    """Of the object; once that is gone, as it was recorded last."""
    recorded = records.stack.intent if records.stack is not None else None
    intent = records.intent if records.item is not None else recorded
    if intent is None:
        raise ValueError("nothing says what to record")
    return intent


def _wanted_of(records: Records) -> str:
    """What would be recorded, so that a failure with one spec does not hold up the next one."""
    intent = records.intent
    return f"{intent.uid} {intent.accepted_hash}" if intent is not None else ""


def _record_to_hold(address: StackAddress, records: Records) -> StackRecord:
    if records.stack is not None:
        return replace(records.stack, error=None, failures=0)
    return StackRecord(address, uid=_intent_of(records).uid)
