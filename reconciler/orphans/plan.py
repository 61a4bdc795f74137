"""What is left over, and since when. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.operations import OperationPhase
from gpu_platform.domain.stock import claim_holder_of, claimed_at, is_claimed

Json = dict[str, Any]

CLAIM_LIMIT = timedelta(seconds=60)
"""How long a claim may stand alone: an accepting process writes its unit within a second, or is dead."""

CHILD_LIMIT = timedelta(seconds=30)
"""How long an object may be without its unit: Kubernetes' own garbage collector comes first."""


@dataclass(frozen=True)
class Observed:
    stock: tuple[Json, ...]
    units: frozenset[str]
    """`namespace/name` of every unit."""

    active_operations: frozenset[str]
    """The operationIDs that are not at their end."""

    children: tuple[Json, ...]
    orphaned_since: Mapping[str, datetime]
    """By uid, from the last look."""


@dataclass(frozen=True)
class ReleaseClaim:
    stock: Json
    holder: str


@dataclass(frozen=True)
class DeleteOrphan:
    child: Json


@dataclass(frozen=True)
class Plan:
    writes: tuple[ReleaseClaim | DeleteOrphan, ...]
    orphaned_since: Mapping[str, datetime]


def plan_orphans(observed: Observed, now: datetime) -> Plan:
    """
    | what                     | its unit | its operation | for           | action   |
    | ------------------------ | -------- | ------------- | ------------- | -------- |
    | claimed stock            | exists   | any           | any           | none     |
    | claimed stock            | missing  | active        | any           | none     |
    | claimed stock            | missing  | ended or none | up to 60 s    | none     |
    | claimed stock            | missing  | ended or none | over 60 s     | release  |
    | Deployment, Service, …   | exists   | –             | any           | none     |
    | Deployment, Service, …   | missing  | –             | up to 30 s    | remember |
    | Deployment, Service, …   | missing  | –             | over 30 s     | delete   |
    """
    releases = [
        ReleaseClaim(stock, claim_holder_of(stock) or "") for stock in observed.stock if _is_lost(stock, observed, now)
    ]
    orphans = [child for child in observed.children if _unit_of(child) not in observed.units]
    since = {child["metadata"]["uid"]: observed.orphaned_since.get(child["metadata"]["uid"], now) for child in orphans}
    deletes = [DeleteOrphan(child) for child in orphans if now - since[child["metadata"]["uid"]] > CHILD_LIMIT]
    return Plan((*releases, *deletes), since)


def active_operation_ids(operations: Iterable[Json]) -> frozenset[str]:
    ended = (OperationPhase.SUCCEEDED, OperationPhase.FAILED)
    return frozenset(
        operation["spec"]["operationID"]
        for operation in operations
        if operation.get("status", {}).get("phase") not in ended
    )


def _is_lost(stock: Json, observed: Observed, now: datetime) -> bool:
    if not is_claimed(stock) or claim_holder_of(stock) in observed.units:
        return False
    annotations = stock["metadata"].get("annotations") or {}
    if annotations.get(names.ANNOTATION_OPERATION_ID) in observed.active_operations:
        return False
    since = claimed_at(stock) or datetime.fromisoformat(stock["metadata"]["creationTimestamp"])
    return now - since > CLAIM_LIMIT


def _unit_of(child: Json) -> str:
    labels = child["metadata"].get("labels") or {}
    return f"{child['metadata']['namespace']}/{labels.get(names.LABEL_UNIT, '')}"
