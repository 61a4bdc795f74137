"""Restores one stack: takes its Lease as the stack worker does, runs Pulumi, writes index and ledger."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.operations import OperationKind, OperationPhase, OperationSpec, OperationTarget, operation_name
from gpu_platform.domain.stacks import OBJECT_KINDS, Intent, Recorded, StackKind, StackRecord, intent_of
from gpu_platform.domain.stock import PoolRequest, StockPoolSpec, StockRequest, StockUnitsRequest, seed_pool_name
from gpu_platform.kube import AlreadyExistsError, KubeClient, KubeError, UnreachableError
from gpu_platform.kube.errors import ConflictError, NotFoundError
from gpu_platform.kube.requests import ObjectClient, find
from gpu_platform.process import pass_point
from gpu_platform.pulumi_protocol.resource import describe
from gpu_platform.store.ledger import build_operation, finish_operation, open_operation
from gpu_platform.store.stack_leases import PATHS, Holder, holder_of, release_lease, take_lease
from stacks.restore.observe import Seen, Snapshot
from stacks.restore.plan import RUNS, Action, Kept, Outcome, Result, outcome_of, plan_restore
from stacks.runner import Fault, RunnerStoppedError, StackFailedError, StackRunner, UpResult
from stacks.runner.programs import build_program
from stacks.worker.lease import Held, Terms, build_record, clear_away, healing, renewed

KINDS = {kind: name for name, kind in OBJECT_KINDS.items()}
CREATIONS = {
    StackKind.GPU_UNIT: OperationKind.CREATE_UNIT,
    StackKind.GPU_STORAGE: OperationKind.CREATE_STORAGE,
    StackKind.GPU_FUNCTION: OperationKind.CREATE_FUNCTION,
    StackKind.STOCK_POOL: OperationKind.CREATE_STOCK_POOL,
}
T = TypeVar("T")

LOOK_SECONDS = 0.5
"""Between two looks at a stack on which somebody else works."""


async def record_creation(client: ObjectClient, intent: Intent, now: datetime) -> None:
    """Unless there is one. What another request has under the name is left as it is."""
    if not (intent.operation_id and intent.request_hash):
        return
    name = operation_name(intent.address.ledger_tenant, intent.operation_id)
    opened = await open_operation(client, build_operation(name, intent.address.namespace, build_creation(intent)))
    if not opened.is_new:
        return
    try:
        await finish_operation(client, opened.operation, OperationPhase.SUCCEEDED, now, target_uid=intent.uid)
    except (ConflictError, NotFoundError):
        # The operations controller was faster, and marks the same object.
        return


def build_creation(intent: Intent) -> OperationSpec:
    """The hash is the request's own, so that the same request is known again. The request itself is lost; what a pool
    has in its place is enough for the operations controller to end what this process leaves half done."""
    request = _build_pool_request(intent) if intent.address.kind is StackKind.STOCK_POOL else None
    is_seed = isinstance(request, StockUnitsRequest)
    return OperationSpec(
        operation_id=intent.operation_id,
        kind=OperationKind.SEED_STOCK_UNITS if is_seed else CREATIONS[intent.address.kind],
        request_hash=intent.request_hash,
        request=request.to_json() if request is not None else {},
        target=OperationTarget(
            kind=KINDS[intent.address.kind], namespace=intent.address.namespace, name=intent.address.name
        ),
    )


def _build_pool_request(intent: Intent) -> StockRequest:
    spec = StockPoolSpec.model_validate(intent.spec)
    if intent.address.name == seed_pool_name(spec.spec_name, intent.operation_id):
        return StockUnitsRequest(spec_name=spec.spec_name, replicas=max(spec.replicas, 1))
    return PoolRequest(
        name=intent.address.name,
        spec_name=spec.spec_name,
        image=spec.image,
        replicas=spec.replicas,
        replenish=spec.replenish,
    )


@dataclass(frozen=True)
class _Failed:
    reason: str
    is_interrupted: bool = False


class StackRestorer:
    def __init__(
        self,
        client: KubeClient,
        runner: StackRunner,
        executor: Executor,
        snapshot: Snapshot,
        holder: Holder,
        lease_seconds: int,
        longest_run: float,
        now: Callable[[], datetime],
        interrupted: asyncio.Event,
        *,
        break_locks: bool,
    ) -> None:
        self._client = client
        self._runner = runner
        self._executor = executor
        self._snapshot = snapshot
        self._holder = holder
        self._lease_seconds = lease_seconds
        self._patience = lease_seconds + longest_run
        self._now = now
        self._interrupted = interrupted
        self._break_locks = break_locks
        self._terms = Terms(holder)

    async def restore(self, kept: Kept) -> Outcome:
        """UnreachableError: there is no use in trying the next one."""
        address = kept.intent.address
        deadline = time.monotonic() + self._patience
        while True:
            seen = await self._snapshot.look(self._client, address, kept)
            step = plan_restore(seen.observed)
            if step.action not in RUNS:
                return outcome_of(address, step)
            left = self._terms.seconds_left(seen.lease)
            if left == 0:
                outcome = await self._try(kept, seen, step.action)
                if outcome is not None:
                    return outcome
            if self._interrupted.is_set():
                return Outcome(address, Result.INTERRUPTED, "somebody else worked on it; restore again to go on")
            if time.monotonic() > deadline:
                holder = holder_of(seen.lease or {}) or "somebody else"
                return Outcome(address, Result.FAILED, f"{holder} works on it all the time; restore it again later")
            await asyncio.sleep(min(left, LOOK_SECONDS) or LOOK_SECONDS)

    async def _try(self, kept: Kept, seen: Seen, action: Action) -> Outcome | None:
        """None: somebody else was faster, look again."""
        try:
            return await self._run_held(kept, seen, action)
        except (AlreadyExistsError, ConflictError):
            return None
        except UnreachableError:
            raise
        except KubeError as error:
            address = kept.intent.address
            reason = describe(error, f"the stack's entry {address.lease}", self._client.server)
            return Outcome(address, Result.FAILED, reason)

    async def _run_held(self, kept: Kept, seen: Seen, action: Action) -> Outcome | None:
        address, record = kept.intent.address, build_record_to_hold(kept, seen.observed.record, self._now())
        # What is there may have been asked for anew, by another request: then the stack is to say that one.
        intent = (intent_of(seen.observed.item) if seen.observed.item is not None else None) or kept.intent
        taken = await take_lease(self._client, seen.lease, record, self._holder, self._lease_seconds, self._now())
        pass_point("restore.lease-taken")
        stale = holder_of(seen.lease or {})
        on_loss = partial(self._runner.interrupt, address)
        async with renewed(self._client, taken, self._lease_seconds, self._now, on_loss) as held:
            done = await self._run(intent, stale if stale != self._holder.identity else "")
        if held.is_lost:
            return None
        if isinstance(done, _Failed):
            await self._release_failed(held, record, done)
            result = Result.INTERRUPTED if done.is_interrupted else Result.FAILED
            return Outcome(address, result, done.reason)
        live, accepted, run = done
        now = self._now()
        # As the object says it: by that the stack worker sees whether there is something to record.
        await release_lease(self._client, held.lease, build_record(accepted, run, now), now)
        pass_point("restore.index-written")
        is_without = action is Action.MAKE and kept.runs and not _has_source(live)
        return Outcome(address, Result.RESTORED, is_without_stock=is_without)

    async def _run(self, wanted: Intent, stale: str) -> tuple[Json, Intent, UpResult] | _Failed:
        """The object as it is now, what was accepted for it, and the result of Pulumi's run."""
        address = wanted.address
        try:
            run = await self._in_thread(partial(self._run_pulumi, wanted, stale))
            pass_point("restore.pulumi-done")
            live = await find(self._client, PATHS[address.kind], address.name, address.namespace)
            intent = intent_of(live) if live is not None else None
            if live is None or intent is None:
                return _Failed(
                    "it was made, and deleted by somebody at once; look who does that, then restore it again"
                )
            await record_creation(self._client, intent, self._now())
            pass_point("restore.ledger-written")
        except RunnerStoppedError:
            return _Failed("interrupted; restore again to go on", is_interrupted=True)
        except StackFailedError as error:
            return _Failed(explain(error))
        except OSError as error:
            return _Failed(f"the work directory of its stack: {error}")
        except KubeError as error:
            return _Failed(describe(error, address.full_name, self._client.server))
        return live, intent, run

    def _run_pulumi(self, intent: Intent, stale: str) -> UpResult:
        """Once more, when the stack was locked by a process that is provably gone, or whose lock a person gave up."""
        address = intent.address
        if stale:
            clear_away(self._runner, address, stale)
        return healing(
            lambda: self._runner.record(address, build_program(intent), refresh=True),
            lambda _: self._runner.heal_lock(address, lease_expired=self._break_locks),
        )

    async def _release_failed(self, held: Held, record: StackRecord, failed: _Failed) -> None:
        told = record if failed.is_interrupted else replace(record, error=failed.reason, failures=record.failures + 1)
        with suppress(KubeError):
            # It runs out by itself otherwise.
            await release_lease(self._client, held.lease, told, self._now())

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def build_record_to_hold(kept: Kept, record: StackRecord | None, now: datetime) -> StackRecord:
    """What the index says while Pulumi runs, and if this process dies: that the stack is recorded. One that was only
    begun, and has no object, would be removed by the stack worker."""
    if record is not None and record.recorded is not None:
        return replace(record, error=None, failures=0)
    intent = kept.intent
    recorded = Recorded(intent.accepted_spec, intent.operation_id, intent.request_hash, kept.at or now, resources=1)
    return StackRecord(intent.address, uid=intent.uid, recorded=recorded)


def explain(error: StackFailedError) -> str:
    if error.fault is Fault.LOCKED:
        return f"{error.message}; wait for its end, or if nobody is at work there: restore with --break-locks"
    return error.message


def _has_source(live: Json) -> bool:
    return names.ANNOTATION_SOURCE_STOCK_NAME in annotations_of(live)
