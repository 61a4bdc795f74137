"""What is left over, and since when. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import key_of, labels_of
from gpu_platform.domain.operations import FINAL_PHASES
from gpu_platform.domain.stock import claim_of, claimed_at, is_claimed, is_from
from reconciler.guarded_writes import DeleteObject


@dataclass(frozen=True)
class OrphanLimits:
    claim: timedelta = timedelta(seconds=60)
    """How long a claim without an operation may stand alone."""

    child: timedelta = timedelta(seconds=30)
    """How long an object may be without its unit: Kubernetes' own garbage collector comes first."""


DEFAULT_LIMITS = OrphanLimits()


@dataclass(frozen=True)
class Observed:
    stock: tuple[Json, ...]
    units: Mapping[str, Json]
    """Every unit by `namespace/name`."""

    operations: Mapping[str, bool]
    """Every Operation by `namespace/name`, and whether it has ended: a claim says for which one it was made. With the
    namespace, because an Operation of the same name in another one is another tenant's."""

    children: tuple[Json, ...]
    orphaned_since: Mapping[str, datetime]
    """By uid, from the last look."""


@dataclass(frozen=True)
class ReleaseClaim:
    stock: Json


@dataclass(frozen=True)
class Plan:
    writes: tuple[ReleaseClaim | DeleteObject, ...]
    orphaned_since: Mapping[str, datetime]


def plan_orphans(observed: Observed, now: datetime, limits: OrphanLimits = DEFAULT_LIMITS) -> Plan:
    """
    | what                     | its unit                          | its operation | for           | action   |
    | ------------------------ | --------------------------------- | ------------- | ------------- | -------- |
    | claimed stock            | exists, and comes from this stock | any           | any           | none     |
    | claimed stock            | missing, or comes from another    | active        | any           | none     |
    | claimed stock            | missing, or comes from another    | ended         | any           | release  |
    | claimed stock            | missing, or comes from another    | none          | up to 60 s    | none     |
    | claimed stock            | missing, or comes from another    | none          | over 60 s     | release  |
    | Deployment, Service, …   | exists                            | –             | any           | none     |
    | Deployment, Service, …   | missing                           | –             | up to 30 s    | remember |
    | Deployment, Service, …   | missing                           | –             | over 30 s     | delete   |
    """
    releases = [ReleaseClaim(stock) for stock in observed.stock if _is_lost(stock, observed, now, limits)]
    of_units = [child for child in observed.children if names.LABEL_UNIT in labels_of(child)]
    orphans = [child for child in of_units if _unit_of(child) not in observed.units]
    since = {child["metadata"]["uid"]: observed.orphaned_since.get(child["metadata"]["uid"], now) for child in orphans}
    deletes = [
        DeleteObject(child["kind"], child) for child in orphans if now - since[child["metadata"]["uid"]] > limits.child
    ]
    return Plan((*releases, *deletes), since)


def ends_of(operations: Iterable[Json]) -> dict[str, bool]:
    phases = {"/".join(key_of(each)): each.get("status", {}).get("phase") for each in operations}
    return {key: phase in FINAL_PHASES for key, phase in phases.items()}


def _is_lost(stock: Json, observed: Observed, now: datetime, limits: OrphanLimits) -> bool:
    holder = observed.units.get(claim_of(stock).holder)
    if not is_claimed(stock) or (holder is not None and is_from(holder, stock)):
        return False
    has_ended = observed.operations.get(claim_of(stock).operation_key)
    if has_ended is not None:
        return has_ended
    since = claimed_at(stock, now) or datetime.fromisoformat(stock["metadata"]["creationTimestamp"])
    return now - since > limits.claim


def _unit_of(child: Json) -> str:
    return names.claim_holder(child["metadata"]["namespace"], labels_of(child).get(names.LABEL_UNIT, ""))
