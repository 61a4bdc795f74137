"""What to do about one unit: a pure function from what was observed to writes and status."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from gpu_platform.domain import names
from gpu_platform.domain.conditions import Condition, find_condition, with_condition
from gpu_platform.domain.gpu_specs import GPUSpecSpec
from gpu_platform.domain.gpu_units import GPUUnitSpec, GPUUnitStatus, Phase, Reason
from gpu_platform.domain.quantities import QuantityError, parse_amount
from reconciler.children import build_replacement, is_as_desired
from reconciler.units.pods import find_failure, find_node, find_unschedulable
from reconciler.units.resources import (
    UnitBuild,
    build_deployment,
    build_network_policy,
    build_service,
    find_preferred_node,
)

Json = dict[str, Any]

HANDOFF_LIMIT = timedelta(seconds=5)
"""How long a unit waits for its stock's pod to be gone before it tries its luck with the scheduler."""

READY = "Ready"


class ChildKind(StrEnum):
    NETWORK_POLICY = "NetworkPolicy"
    SERVICE = "Service"
    DEPLOYMENT = "Deployment"


@dataclass(frozen=True)
class CreateChild:
    kind: ChildKind
    body: Json


@dataclass(frozen=True)
class ReplaceChild:
    kind: ChildKind
    body: Json


@dataclass(frozen=True)
class DeleteChild:
    kind: ChildKind
    live: Json


@dataclass(frozen=True)
class ConsumeStock:
    """The unit has its place: the stock object has done its work."""

    stock: Json


Write = CreateChild | ReplaceChild | DeleteChild | ConsumeStock


@dataclass(frozen=True)
class SourceStock:
    """The stock that is claimed for this unit, while it exists."""

    unit: Json
    pods: tuple[Json, ...]
    claimed_at: datetime | None


@dataclass(frozen=True)
class Observed:
    unit: Json
    catalogue: GPUSpecSpec | None
    restricted: bool
    network_policy: Json | None
    service: Json | None
    deployment: Json | None
    leftovers: Mapping[ChildKind, Json]
    """Objects under this unit's names that belong to an earlier unit: they have to go first."""

    pods: tuple[Json, ...]
    is_claimed_stock: bool
    source: SourceStock | None


@dataclass(frozen=True)
class UnitSettings:
    placeholder_image: str
    blocked_egress: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """What the unit's Ready condition says."""

    phase: Phase
    reason: Reason
    message: str


@dataclass(frozen=True)
class Plan:
    writes: tuple[Write, ...]
    status: GPUUnitStatus
    requeue_after: timedelta | None = None
    why: str = ""


def plan_unit(observed: Observed, settings: UnitSettings, now: datetime) -> Plan:
    """Rows are tried from top to bottom.

    | unit                              | stock claimed for it  | deployment | writes               | phase · reason            |
    | --------------------------------- | --------------------- | ---------- | -------------------- | ------------------------- |
    | being deleted                     | any                   | any        | none                 | Terminating · Terminating |
    | spec or catalogue entry is wrong  | any                   | any        | none                 | Failed · InvalidSpec      |
    | access names no port              | any                   | any        | none                 | Failed · Access…Invalid   |
    | is stock, and claimed             | –                     | any        | scale to 0           | as it was                 |
    | not running                       | any                   | any        | children, 0 replicas | Stopped · Stopped         |
    | running                           | its pod still there   | missing    | all but Deployment   | Progressing · Unit…       |
    | running                           | not scheduled so far  | any        | children             | by the pods, see `judge`  |
    | running                           | unit is scheduled     | any        | children, consume    | by the pods, see `judge`  |
    """
    if "deletionTimestamp" in observed.unit["metadata"]:
        return _only(observed, Verdict(Phase.TERMINATING, Reason.TERMINATING, "waits for its objects to go"), now)
    spec = parse_spec(observed.unit)
    problem = find_problem(observed, spec)
    if spec is None or observed.catalogue is None or problem is not None:
        return _only(observed, problem or _missing_catalogue(observed), now)
    if observed.is_claimed_stock:
        build = _build(observed, spec, observed.catalogue, settings, replicas=0)
        return Plan(_child_writes(observed, build), status=_status_of(observed.unit))
    if not spec.running:
        build = _build(observed, spec, observed.catalogue, settings, replicas=0)
        verdict = Verdict(Phase.STOPPED, Reason.STOPPED, "stopped; its GPUs are free")
        return Plan(_child_writes(observed, build), status=_status(observed, build, verdict, now))
    build = _build(observed, spec, observed.catalogue, settings, replicas=1)
    if (wait := _handoff_wait(observed, now)) is not None:
        verdict = Verdict(Phase.PROGRESSING, Reason.UNIT_PROGRESSING, "takes over the GPUs of its stock")
        writes = _child_writes(observed, build, with_deployment=False)
        return Plan(writes, _status(observed, build, verdict, now), wait, "the stock's pod is still there")
    writes = _child_writes(observed, build)
    if observed.source is not None and find_node(observed.pods) is not None:
        writes = (*writes, ConsumeStock(observed.source.unit))
    return Plan(writes, _status(observed, build, judge(observed, build), now))


def parse_spec(unit: Json) -> GPUUnitSpec | None:
    try:
        return GPUUnitSpec.model_validate(unit.get("spec", {}))
    except ValidationError:
        return None


def find_problem(observed: Observed, spec: GPUUnitSpec | None) -> Verdict | None:
    """What makes the unit impossible to build, in words that say which field to mend."""
    if spec is None:
        return _invalid("spec does not fit the schema of this version")
    if observed.catalogue is None:
        return _missing_catalogue(observed)
    for field, text in (
        ("spec.memory", spec.memory or observed.catalogue.memory),
        (f"GPUSpec {spec.spec_name}: cpu", observed.catalogue.cpu),
    ):
        try:
            parse_amount(text)
        except QuantityError as error:
            return _invalid(f"{field}: {error}")
    return _find_access_problem(spec)


def judge(observed: Observed, build: UnitBuild) -> Verdict:
    """The Ready condition of a unit whose objects are as they should be; rows from top to bottom.

    | deployment                            | pods             | verdict                                         |
    | ------------------------------------- | ---------------- | ----------------------------------------------- |
    | seen at its newest, one pod available | any              | Ready · UnitReady (StockReady)                  |
    | any                                   | one cannot start | Failed · PodStartupFailed, the container's words |
    | any                                   | one has no place | Pending · Unschedulable, the scheduler's words  |
    | any                                   | any              | Progressing · UnitProgressing (StockNotReady)   |
    """
    if _is_available(observed.deployment):
        reason = Reason.STOCK_READY if build.is_stock else Reason.UNIT_READY
        return Verdict(Phase.READY, reason, "holds its GPUs" if build.is_stock else "runs")
    if failure := find_failure(observed.pods):
        return Verdict(Phase.FAILED, Reason.POD_STARTUP_FAILED, failure)
    if unschedulable := find_unschedulable(observed.pods):
        return Verdict(Phase.PENDING, Reason.UNSCHEDULABLE, unschedulable)
    reason = Reason.STOCK_NOT_READY if build.is_stock else Reason.UNIT_PROGRESSING
    return Verdict(Phase.PROGRESSING, reason, "its pod is starting")


def with_sync_failure(observed: Observed, kind: ChildKind, message: str, now: datetime) -> GPUUnitStatus:
    """The status after the API server refused one of the unit's objects."""
    reasons = {
        ChildKind.NETWORK_POLICY: Reason.UNIT_NETWORK_POLICY_SYNC_FAILED,
        ChildKind.SERVICE: Reason.UNIT_SERVICE_SYNC_FAILED,
        ChildKind.DEPLOYMENT: Reason.UNIT_DEPLOYMENT_SYNC_FAILED,
    }
    return _plain_status(observed, Verdict(Phase.FAILED, reasons[kind], message), now)


def status_differs(old: GPUUnitStatus, new: GPUUnitStatus) -> bool:
    """The time of the last write is not a change."""
    return old.model_copy(update={"last_sync_time": None}) != new.model_copy(update={"last_sync_time": None})


def _only(observed: Observed, verdict: Verdict, now: datetime) -> Plan:
    return Plan((), _plain_status(observed, verdict, now))


def _invalid(message: str) -> Verdict:
    return Verdict(Phase.FAILED, Reason.INVALID_SPEC, message)


def _missing_catalogue(observed: Observed) -> Verdict:
    name = observed.unit.get("spec", {}).get("specName")
    return _invalid(f"spec.specName: there is no GPUSpec {name!r}; see `kubectl get gpuspecs`")


def _find_access_problem(spec: GPUUnitSpec) -> Verdict | None:
    if spec.access is None or spec.access.primary_port is None:
        return None
    ports = [port.name for port in spec.template.ports]
    if spec.access.primary_port in ports:
        return None
    known = ", ".join(ports) or "none"
    message = (
        f"spec.access.primaryPort: {spec.access.primary_port!r} is not a port of the template (it has: {known})"
    )
    return Verdict(Phase.FAILED, Reason.ACCESS_CONFIG_INVALID, message)


def _build(
    observed: Observed, spec: GPUUnitSpec, catalogue: GPUSpecSpec, settings: UnitSettings, *, replicas: int
) -> UnitBuild:
    metadata = observed.unit["metadata"]
    source_node = observed.source.unit.get("status", {}).get("nodeName") if observed.source else None
    return UnitBuild(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        spec=spec,
        catalogue=catalogue,
        restricted=observed.restricted,
        replicas=replicas,
        # Once the Deployment exists, its template stays: another preference would restart the unit.
        preferred_node=find_preferred_node(observed.deployment) if observed.deployment else source_node,
        placeholder_image=settings.placeholder_image,
        blocked_egress=settings.blocked_egress,
    )


def _handoff_wait(observed: Observed, now: datetime) -> timedelta | None:
    """How long the Deployment still has to wait for the stock's pod; None when it may be applied."""
    source = observed.source
    if source is None or not source.pods or observed.deployment is not None:
        return None
    since = source.claimed_at or datetime.fromisoformat(observed.unit["metadata"]["creationTimestamp"])
    left = since + HANDOFF_LIMIT - now
    return left if left > timedelta() else None


def _child_writes(observed: Observed, build: UnitBuild, *, with_deployment: bool = True) -> tuple[Write, ...]:
    """The policy comes first: no pod may ever run without it."""
    wanted: list[tuple[ChildKind, Json | None, Json | None]] = [
        (ChildKind.NETWORK_POLICY, build_network_policy(build), observed.network_policy),
        (ChildKind.SERVICE, build_service(build), observed.service),
    ]
    if with_deployment:
        wanted.append((ChildKind.DEPLOYMENT, build_deployment(build), observed.deployment))
    writes = (
        _removal(kind, observed.leftovers[kind])
        if kind in observed.leftovers
        else _child_write(kind, desired, live)
        for kind, desired, live in wanted
    )
    return tuple(write for write in writes if write is not None)


def _child_write(kind: ChildKind, desired: Json | None, live: Json | None) -> Write | None:
    if desired is None:
        return _removal(kind, live) if live is not None else None
    if live is None:
        return CreateChild(kind, desired)
    return None if is_as_desired(desired, live) else ReplaceChild(kind, build_replacement(desired, live))


def _removal(kind: ChildKind, live: Json) -> Write | None:
    return None if "deletionTimestamp" in live["metadata"] else DeleteChild(kind, live)


def _is_available(deployment: Json | None) -> bool:
    """Only the newest template counts: an old pod that still answers is not this unit."""
    if deployment is None:
        return False
    status = deployment.get("status", {})
    is_seen: bool = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    available: int = min(status.get("updatedReplicas", 0), status.get("availableReplicas", 0))
    return is_seen and available >= 1


def _status_of(unit: Json) -> GPUUnitStatus:
    return GPUUnitStatus.model_validate(unit.get("status", {}))


def _status(observed: Observed, build: UnitBuild, verdict: Verdict, now: datetime) -> GPUUnitStatus:
    plain = _plain_status(observed, verdict, now)
    is_ready = verdict.phase is Phase.READY
    has_service = not build.is_stock and bool(build.spec.template.ports)
    return plain.model_copy(
        update={
            "ready_replicas": 1 if is_ready else 0,
            "service_name": names.child_name(build.name) if has_service else None,
            "access_url": _access_url(build) if has_service and is_ready else None,
        }
    )


def _plain_status(observed: Observed, verdict: Verdict, now: datetime) -> GPUUnitStatus:
    old = _status_of(observed.unit)
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
