"""Carries out a unit's plan: children in order, then the status, last and only if it changed."""

from datetime import datetime
from typing import Any, Literal

from gpu_platform.adapters.kube import (
    AlreadyExistsError,
    ConflictError,
    KubeError,
    NotFoundError,
    ResourcePath,
    UnreachableError,
)
from gpu_platform.adapters.kube.paths import DEPLOYMENTS, GPU_UNITS, NETWORK_POLICIES, SERVICES
from gpu_platform.domain.conditions import find_condition
from gpu_platform.domain.gpu_units import GPUUnitStatus, Phase
from reconciler.children import FIELD_MANAGER
from reconciler.guarded_writes import delete_seen, patch_status
from reconciler.units.observed import ChildKind, Observed
from reconciler.units.plan import ConsumeStock, CreateChild, DeleteChild, Plan, ReplaceChild, Write
from reconciler.units.status import READY, reason_of, status_of, with_sync_failure
from reconciler.writer import Recorder, Writer

Json = dict[str, Any]

PATHS: dict[ChildKind, ResourcePath] = {
    ChildKind.NETWORK_POLICY: NETWORK_POLICIES,
    ChildKind.SERVICE: SERVICES,
    ChildKind.DEPLOYMENT: DEPLOYMENTS,
}
MANAGER = {"fieldManager": FIELD_MANAGER}
TRANSIENT = (AlreadyExistsError, ConflictError, NotFoundError, UnreachableError)
"""The world moved, or is not there: looked at again, and no fault of the unit."""

QUIET_PHASES = (Phase.PROGRESSING, Phase.TERMINATING)
"""No Event for what only passes by."""


class SyncFailedError(Exception):
    """The API server refused a child; the status says so, and the loop tries again later."""


async def apply_plan(plan: Plan, observed: Observed, writer: Writer, events: Recorder, now: datetime) -> bool:
    """Whether the unit's own status was written."""
    failure: KubeError | None = None
    status = plan.status
    for write in plan.writes:
        try:
            await _apply_write(write, writer)
        except TRANSIENT:
            raise
        except KubeError as error:
            if isinstance(write, ConsumeStock):
                raise
            failure, status = error, with_sync_failure(observed, write.kind, error.message, now)
            break
    is_written = await apply_status(observed.unit, status, writer, events)
    if failure is not None:
        raise SyncFailedError(str(failure)) from failure
    return is_written


async def apply_status(unit: Json, status: GPUUnitStatus, writer: Writer, events: Recorder) -> bool:
    old = status_of(unit)
    if not await patch_status(writer, GPU_UNITS, unit, old, status):
        return False
    if reason_of(old) != reason_of(status) and status.phase not in QUIET_PHASES:
        await _record(unit, status, events)
    return True


async def _apply_write(write: Write, writer: Writer) -> None:
    match write:
        case CreateChild(kind, body):
            await writer.create(PATHS[kind].collection(body["metadata"]["namespace"]), body, MANAGER)
        case ReplaceChild(kind, body):
            metadata = body["metadata"]
            await writer.replace(PATHS[kind].item(metadata["name"], metadata["namespace"]), body, MANAGER)
        case DeleteChild(kind, live):
            await delete_seen(writer, PATHS[kind], live)
        case ConsumeStock(stock):
            await delete_seen(writer, GPU_UNITS, stock)


async def _record(unit: Json, status: GPUUnitStatus, events: Recorder) -> None:
    condition = find_condition(status.conditions, READY)
    if condition is not None:
        kind: Literal["Normal", "Warning"] = "Warning" if status.phase in (Phase.FAILED, Phase.PENDING) else "Normal"
        await events.record(unit, kind, condition.reason, condition.message)
