"""Carries out a unit's plan: children in order, then the status, last and only if it changed."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Literal

from gpu_platform.domain.conditions import find_condition, reason_of
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import child_name
from gpu_platform.domain.units import GPUUnitStatus, Phase
from gpu_platform.kube import KubeError, NotFoundError
from gpu_platform.kube.paths import SECRETS
from gpu_platform.kube.requests import ObjectClient
from reconciler.child_diff import UnitChild
from reconciler.expectations import OwnWrites, Place, place_of
from reconciler.guarded_writes import TRANSIENT, DeleteObject, Recorder, ReplaceObject, apply_write, write_status
from reconciler.units.observe import Observed
from reconciler.units.plan import DeleteSecret, Plan, Write
from reconciler.units.route_resources import ROUTES
from reconciler.units.status import READY, with_refused_route, with_sync_failure

UNIT = "GPUUnit"
QUIET_PHASES = (Phase.PROGRESSING, Phase.TERMINATING)
"""No Event for what only passes by."""


class SyncFailedError(Exception):
    """The API server refused a child; the status says so, and the loop tries again later."""


def places_of(observed: Observed) -> Iterator[tuple[Place, Json | None]]:
    """Every object that a unit's plan may write, as it was seen."""
    yield place_of(UNIT, observed.unit), observed.unit
    namespace = observed.unit["metadata"]["namespace"]
    name = child_name(observed.unit["metadata"]["name"])
    for kind in UnitChild:
        # Whatever has the child's name now, the unit's own or an earlier unit's.
        yield (kind, namespace, name), observed.children.get(kind) or observed.leftovers.get(kind)
    if observed.source is not None:
        yield place_of(UNIT, observed.source.unit), observed.source.unit


async def apply_plan(
    plan: Plan, observed: Observed, writer: ObjectClient, events: Recorder, own_writes: OwnWrites, now: datetime
) -> None:
    failure: KubeError | None = None
    status = plan.status
    for write in plan.writes:
        try:
            await _apply_write(write, writer, own_writes)
        except TRANSIENT:
            raise
        except KubeError as error:
            if isinstance(write, DeleteObject) and write.kind == UNIT:
                raise
            failure = error
            kind = UnitChild(write.kind) if write.kind in set(UnitChild) else None
            if kind in ROUTES:
                # The unit runs without its route, which is the last of its objects.
                status = with_refused_route(status, observed, error.message, now)
            else:
                status = with_sync_failure(observed, kind, error.message, now)
                break
    # The status is guarded by the version of the unit: after a write on the unit, it is for the next pass.
    if not any(isinstance(write, ReplaceObject) and write.kind == UNIT for write in plan.writes):
        await apply_status(observed.unit, status, writer, events, own_writes)
    if failure is not None:
        raise SyncFailedError(str(failure)) from failure


async def apply_status(
    unit: Json, status: GPUUnitStatus, writer: ObjectClient, events: Recorder, own_writes: OwnWrites
) -> None:
    old = GPUUnitStatus.of(unit)
    if not await write_status(writer, own_writes, UNIT, unit, old, status):
        return
    condition = find_condition(status.conditions, READY)
    if condition is not None and reason_of(old.conditions) != condition.reason and status.phase not in QUIET_PHASES:
        kind: Literal["Normal", "Warning"] = "Warning" if status.phase in (Phase.FAILED, Phase.PENDING) else "Normal"
        await events.record(unit, kind, condition.reason, condition.message)


async def _apply_write(write: Write, writer: ObjectClient, own_writes: OwnWrites) -> None:
    if isinstance(write, DeleteSecret):
        # By its name: the unit and the token are in it.
        with suppress(NotFoundError):
            await writer.delete(SECRETS.item(write.name, write.namespace))
    else:
        own_writes.remember(*await apply_write(write, writer))
