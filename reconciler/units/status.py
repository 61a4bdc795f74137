"""What a unit's status says: phase, Ready condition, address. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.conditions import Condition, find_condition, with_condition
from gpu_platform.domain.gpu_units import GPUUnitStatus, Phase, Reason
from reconciler.units.observed import ChildKind, Observed
from reconciler.units.pods import find_failure, find_node, find_ready, find_unschedulable
from reconciler.units.resources import UnitBuild, template_hash

Json = dict[str, Any]

READY = "Ready"


@dataclass(frozen=True)
class Verdict:
    """What the unit's Ready condition says."""

    phase: Phase
    reason: Reason
    message: str


def judge(observed: Observed, build: UnitBuild) -> Verdict:
    """The Ready condition of a unit whose objects are as they should be; rows from top to bottom.

    | deployment | pods                                | verdict                                          |
    | ---------- | ----------------------------------- | ------------------------------------------------ |
    | above 0    | one of the newest template is Ready | Ready · UnitReady (StockReady)                   |
    | any        | one cannot start                    | Failed · PodStartupFailed, the container's words |
    | any        | one has no place                    | Pending · Unschedulable, the scheduler's words   |
    | any        | any other                           | Progressing · UnitProgressing (StockNotReady)    |
    """
    if observed.is_scaled_up and find_ready(observed.pods, template_hash(build)) is not None:
        reason = Reason.STOCK_READY if build.is_stock else Reason.UNIT_READY
        return Verdict(Phase.READY, reason, "holds its GPUs" if build.is_stock else "runs")
    if failure := find_failure(observed.pods):
        return Verdict(Phase.FAILED, Reason.POD_STARTUP_FAILED, failure)
    if unschedulable := find_unschedulable(observed.pods):
        return Verdict(Phase.PENDING, Reason.UNSCHEDULABLE, unschedulable)
    reason = Reason.STOCK_NOT_READY if build.is_stock else Reason.UNIT_PROGRESSING
    return Verdict(Phase.PROGRESSING, reason, "its pod is starting")


def status_of(unit: Json) -> GPUUnitStatus:
    return GPUUnitStatus.model_validate(unit.get("status", {}))


def build_status(observed: Observed, build: UnitBuild, verdict: Verdict, now: datetime) -> GPUUnitStatus:
    plain = plain_status(observed, verdict, now)
    is_ready = verdict.phase is Phase.READY
    has_service = not build.is_stock and bool(build.spec.template.ports)
    return plain.model_copy(
        update={
            "ready_replicas": 1 if is_ready else 0,
            "service_name": names.child_name(build.name) if has_service else None,
            "access_url": _access_url(build) if has_service and is_ready else None,
        }
    )


def plain_status(observed: Observed, verdict: Verdict, now: datetime) -> GPUUnitStatus:
    old = status_of(observed.unit)
    generation = observed.unit["metadata"].get("generation")
    condition = Condition(
        type=READY,
        status="True" if verdict.phase is Phase.READY else "False",
        reason=verdict.reason,
        message=verdict.message,
        observed_generation=generation,
        last_transition_time=now,
    )
    return GPUUnitStatus(
        phase=verdict.phase,
        observed_generation=generation,
        last_sync_time=now,
        # Not while it starts: one status write more per unit, for something that is of use once it runs.
        node_name=None if verdict.phase is Phase.PROGRESSING else find_node(observed.pods),
        conditions=with_condition(old.conditions, condition),
    )


def _access_url(build: UnitBuild) -> str:
    access = build.spec.access
    ports = {port.name: port.port for port in build.spec.template.ports}
    port = ports[access.primary_port] if access and access.primary_port else next(iter(ports.values()))
    scheme = access.scheme if access else "http"
    return f"{scheme}://{names.service_host(build.name, build.namespace)}:{port}"


def reason_of(status: GPUUnitStatus) -> str | None:
    condition = find_condition(status.conditions, READY)
    return condition.reason if condition else None


def with_sync_failure(observed: Observed, kind: ChildKind, message: str, now: datetime) -> GPUUnitStatus:
    """The status after the API server refused one of the unit's objects."""
    reasons = {
        ChildKind.NETWORK_POLICY: Reason.UNIT_NETWORK_POLICY_SYNC_FAILED,
        ChildKind.SERVICE: Reason.UNIT_SERVICE_SYNC_FAILED,
        ChildKind.DEPLOYMENT: Reason.UNIT_DEPLOYMENT_SYNC_FAILED,
    }
    return plain_status(observed, Verdict(Phase.FAILED, reasons[kind], message), now)
