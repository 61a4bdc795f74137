"""The previews controller: has Pulumi find out what it would change about a unit, for the caller that asked.

A preview writes nothing, so it needs no Lease: two workers that run the same one waste a second and change nothing.
Tenants take turns: a tenant waits for at most one preview of each other tenant, however many those have queued.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from datetime import datetime, timedelta

from gpu_platform.controller.loop import Done, Key, RequeueAfter, Result, Trigger
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import PREVIEW_RETENTION, OperationKind, OperationPhase, OperationStatus
from gpu_platform.domain.stacks import ERROR_LIMIT, Intent, PreviewResult, intent_of
from gpu_platform.kube.errors import ConflictError, NotFoundError
from gpu_platform.kube.paths import GPU_UNITS
from gpu_platform.kube.requests import ObjectClient, find
from gpu_platform.store.ledger import is_final, patch_operation_status, spec_of, status_of
from stacks.runner import Fault, RunnerStoppedError, StackFailedError, StackRunner
from stacks.runner.programs import build_program
from stacks.worker.metrics import WorkerMetrics
from stacks.worker.observe import StackWorld

log = logging.getLogger(__name__)


ACTION = "preview"


class PreviewsController:
    name = "previews"

    def __init__(
        self,
        world: StackWorld,
        client: ObjectClient,
        runner: StackRunner,
        executor: Executor,
        longest_run: timedelta,
        metrics: WorkerMetrics,
        now: Callable[[], datetime],
    ) -> None:
        self._world = world
        self._client = client
        self._runner = runner
        self._executor = executor
        self._longest_run = longest_run
        self._metrics = metrics
        self._now = now

    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(self._world.operations, keys_of_preview),)

    async def reconcile(self, namespace: str, name: str) -> Result:
        operation = self._world.operations.get(namespace, name)
        if operation is None or is_final(operation):
            return Done()
        if (left := time_left(operation, self._longest_run, self._now())) > timedelta():
            return RequeueAfter(left, "another worker has it")
        begun = OperationStatus(phase=OperationPhase.RUNNING, started_at=self._now())
        try:
            taken = await patch_operation_status(self._client, operation, begun)
            status = await self._run(taken)
            await patch_operation_status(self._client, taken, status)
        except (ConflictError, NotFoundError):
            # Somebody else has it, or ended it; the echo of their write brings the next look.
            log.info("preview.superseded", extra={"operation": name})
            return Done()
        log.info("preview.done", extra={"operation": name, "phase": status.phase, "reason": status.reason})
        return Done()

    async def _run(self, operation: Json) -> OperationStatus:
        target = spec_of(operation).target
        # From the API server: whoever changed the unit and then asked means the unit as it is.
        unit = await find(self._client, GPU_UNITS, target.name, operation["metadata"]["namespace"])
        if unit is None or unit["metadata"]["uid"] != target.uid:
            return self._failed("UnitGone", "the unit was deleted")
        intent = intent_of(unit)
        if intent is None:
            return self._failed("NoStack", "the unit has no stack of its own")
        began_at = time.monotonic()
        try:
            preview = await self._preview(intent)
        except RunnerStoppedError:
            # For the next worker, at once.
            return OperationStatus(phase=OperationPhase.PENDING)
        except StackFailedError as error:
            self._metrics.count_failure(ACTION, error.fault)
            return self._failed(reason_of(error.fault), error.message[:ERROR_LIMIT])
        self._metrics.count_run(ACTION, time.monotonic() - began_at)
        return self._ended(OperationStatus(phase=OperationPhase.SUCCEEDED, result=preview.to_json()))

    async def _preview(self, intent: Intent) -> PreviewResult:
        program = build_program(intent)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._runner.preview, intent.address, program)

    def _failed(self, reason: str, message: str) -> OperationStatus:
        return self._ended(OperationStatus(phase=OperationPhase.FAILED, reason=reason, message=message))

    def _ended(self, status: OperationStatus) -> OperationStatus:
        now = self._now()
        return status.model_copy(update={"finished_at": now, "expires_at": now + PREVIEW_RETENTION})


def keys_of_preview(operation: Json) -> Iterable[Key]:
    metadata = operation["metadata"]
    is_preview = operation["spec"]["kind"] == OperationKind.PREVIEW_UNIT
    return [(metadata["namespace"], metadata["name"])] if is_preview else []


def tenant_lane(key: Key) -> str:
    """A tenant is a namespace."""
    return key[0]


def time_left(operation: Json, longest_run: timedelta, now: datetime) -> timedelta:
    """Before it may be begun, or begun again: its worker may be at work, and is dead once its time is over."""
    status = status_of(operation)
    if status.phase is not OperationPhase.RUNNING or status.started_at is None:
        return timedelta()
    return max(timedelta(), status.started_at + longest_run - now)


def reason_of(fault: Fault) -> str:
    return "".join(word.title() for word in fault.split("-"))
