"""What to do about one pool: which stock to make, which to take away, what to say of it. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import count, islice
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.conditions import Condition, with_condition
from gpu_platform.domain.gpu_specs import GPUSpecSpec
from gpu_platform.domain.gpu_units import GPUUnitSpec, Phase
from gpu_platform.domain.stock import is_available, is_claimed
from gpu_platform.domain.stock_pools import PoolPhase, PoolReason, StockPoolSpec, StockPoolStatus

Json = dict[str, Any]

BATCH = 50
"""Units made or removed in one pass: a large pool fills in steps, and a wrong number can be corrected in between."""


@dataclass(frozen=True)
class Observed:
    pool: Json
    spec: StockPoolSpec
    catalogue: GPUSpecSpec | None
    stock: tuple[Json, ...]
    instances: tuple[Json, ...]
    """Tenants' units that were taken from this pool."""


@dataclass(frozen=True)
class CreateStock:
    body: Json


@dataclass(frozen=True)
class RemoveStock:
    """Only as it was seen: a claim that came in between wins."""

    stock: Json


@dataclass(frozen=True)
class Plan:
    writes: tuple[CreateStock | RemoveStock, ...]
    status: StockPoolStatus
    is_complete: bool
    """False: the batch was full, look again at once."""


def plan_pool(observed: Observed, now: datetime) -> Plan:
    """
    | pool                                   | writes                                        | phase · reason             |
    | -------------------------------------- | --------------------------------------------- | -------------------------- |
    | being deleted                          | none (its stock goes by owner reference)      | Terminating                |
    | not in the stock namespace, no GPUSpec | none                                          | Failed · InvalidSpec       |
    | Always, fewer free than replicas       | make the missing, lowest free ordinals        | by the free units          |
    | Always, more free than replicas        | remove: not ready first, then the youngest    | by the free units          |
    | Never, ordinals above the mark         | make them once, and move the mark             | by the free units          |
    | Never, a unit from here was deleted    | make one for it                               | by the free units          |
    | Never, more free than replicas         | nothing: what was given back stays            | by the free units          |
    | replicas 0                             | as above                                      | Ready · ScaledToZero       |
    """
    if "deletionTimestamp" in observed.pool["metadata"]:
        return _verdict_only(observed, PoolPhase.TERMINATING, PoolReason.SCALED_TO_ZERO, "its stock goes", now)
    if problem := _find_problem(observed):
        return _verdict_only(observed, PoolPhase.FAILED, PoolReason.INVALID_SPEC, problem, now)
    if observed.spec.replenish == "Never":
        return _plan_once(observed, now)
    return _plan_level(observed, now)


def _plan_level(observed: Observed, now: datetime) -> Plan:
    free = [unit for unit in _living(observed) if not is_claimed(unit)]
    missing = observed.spec.replicas - len(free)
    creates = [_create(observed, ordinal) for ordinal in islice(_free_ordinals(observed), max(0, missing))]
    removals = [RemoveStock(unit) for unit in _expendable(free)[: max(0, -missing)]]
    writes: tuple[CreateStock | RemoveStock, ...] = (*creates, *removals)
    status = _status(observed, now, expected=observed.spec.replicas)
    return Plan(writes[:BATCH], status, is_complete=len(writes) <= BATCH)


def _plan_once(observed: Observed, now: datetime) -> Plan:
    old = _status_of(observed.pool)
    present = {unit["metadata"]["name"] for unit in observed.stock}
    # A crash may have come between making a unit and moving the mark; by now it may even be a tenant's.
    taken = {_source_of(unit) for unit in observed.instances}
    names_above_mark = [
        (ordinal, names.stock_unit_name(observed.pool["metadata"]["name"], ordinal))
        for ordinal in range(old.seeded, observed.spec.replicas)
    ][:BATCH]
    seeds = [_create(observed, ordinal) for ordinal, name in names_above_mark if name not in present | taken]
    lent = {unit["metadata"]["uid"] for unit in observed.instances}
    returned = [uid for uid in old.lent if uid not in lent][: BATCH - len(seeds)]
    returns = [_create_named(observed, _returned_name(observed.pool, uid)) for uid in returned]
    seeded = old.seeded + len(names_above_mark)
    still_lent = tuple(sorted(lent | (set(old.lent) - set(returned))))
    status = _status(observed, now, expected=None).model_copy(update={"seeded": seeded, "lent": still_lent})
    is_complete = seeded >= observed.spec.replicas and set(still_lent) == lent
    creates = [create for create in returns if create.body["metadata"]["name"] not in present]
    return Plan((*seeds, *creates), status, is_complete=is_complete)


def _find_problem(observed: Observed) -> str | None:
    if not names.is_stock_namespace(observed.pool["metadata"]["namespace"]):
        return f"stock pools live in the namespace {names.STOCK_NAMESPACE}"
    if observed.catalogue is None:
        return f"spec.specName: there is no GPUSpec {observed.spec.spec_name!r}; see `kubectl get gpuspecs`"
    return None


def _living(observed: Observed) -> list[Json]:
    return [unit for unit in observed.stock if "deletionTimestamp" not in unit["metadata"]]


def _free_ordinals(observed: Observed) -> Iterator[int]:
    """Ordinals whose name nobody has, a unit on its way out included."""
    present = {unit["metadata"]["name"] for unit in observed.stock}
    pool = observed.pool["metadata"]["name"]
    return filter(lambda ordinal: names.stock_unit_name(pool, ordinal) not in present, count())


def _expendable(free: list[Json]) -> list[Json]:
    """Youngest first, but before them whatever is not ready."""
    youngest = sorted(
        free, key=lambda unit: (unit["metadata"]["creationTimestamp"], unit["metadata"]["name"]), reverse=True
    )
    return sorted(youngest, key=is_available)


def _create(observed: Observed, ordinal: int) -> CreateStock:
    return _create_named(observed, names.stock_unit_name(observed.pool["metadata"]["name"], ordinal))


def _create_named(observed: Observed, name: str) -> CreateStock:
    pool = observed.pool["metadata"]
    catalogue = observed.catalogue
    owner = names.owner_reference("StockPool", pool["name"], pool["uid"])
    spec = GPUUnitSpec(
        spec_name=observed.spec.spec_name,
        image=observed.spec.image,
        memory=catalogue.memory if catalogue else None,
        gpu=catalogue.gpu if catalogue else None,
    )
    labels = {
        names.LABEL_MANAGED_BY: names.MANAGED_BY_VALUE,
        names.LABEL_POOL: pool["name"],
        names.LABEL_STOCK_STATE: names.STOCK_FREE,
    }
    metadata = {"name": name, "namespace": pool["namespace"], "labels": labels, "ownerReferences": [owner]}
    return CreateStock(
        {"apiVersion": names.API_VERSION, "kind": "GPUUnit", "metadata": metadata, "spec": spec.to_json()}
    )


def _returned_name(pool: Json, uid: str) -> str:
    """One name per deleted unit: making it twice is making it once."""
    return f"{pool['metadata']['name']}-r{uid.replace('-', '')[:8]}"


def _source_of(unit: Json) -> str | None:
    annotations = unit["metadata"].get("annotations") or {}
    return annotations.get(names.ANNOTATION_SOURCE_STOCK_NAME)


def _status_of(pool: Json) -> StockPoolStatus:
    return StockPoolStatus.model_validate(pool.get("status", {}))


def _status(observed: Observed, now: datetime, *, expected: int | None) -> StockPoolStatus:
    """Counted from the units on every pass. Without an expected number, all free units have to be ready."""
    living = _living(observed)
    free = [unit for unit in living if not is_claimed(unit)]
    available = sum(is_available(unit) for unit in free)
    wanted = len(free) if expected is None else expected
    failed = [unit for unit in free if unit.get("status", {}).get("phase") == Phase.FAILED]
    if observed.spec.replicas == 0 and not free:
        phase, reason, message = PoolPhase.READY, PoolReason.SCALED_TO_ZERO, "holds no stock"
    elif available >= wanted and free:
        phase, reason, message = PoolPhase.READY, PoolReason.DEPLOYMENT_READY, f"{available} free units are ready"
    else:
        message = f"{available} of {wanted} free units are ready"
        if failed:
            message += f"; {len(failed)} cannot start, the first is {failed[0]['metadata']['name']}"
        phase, reason = PoolPhase.PROGRESSING, PoolReason.DEPLOYMENT_PROGRESSING
    return _with_verdict(
        observed, _status_of(observed.pool), phase, reason, message, now, available, len(living) - len(free)
    )


def _verdict_only(observed: Observed, phase: PoolPhase, reason: PoolReason, message: str, now: datetime) -> Plan:
    living = _living(observed)
    claimed = sum(is_claimed(unit) for unit in living)
    available = sum(is_available(unit) for unit in living)
    status = _with_verdict(observed, _status_of(observed.pool), phase, reason, message, now, available, claimed)
    return Plan((), status, is_complete=True)


def _with_verdict(
    observed: Observed,
    old: StockPoolStatus,
    phase: PoolPhase,
    reason: PoolReason,
    message: str,
    now: datetime,
    available: int,
    claimed: int,
) -> StockPoolStatus:
    generation = observed.pool["metadata"].get("generation")
    condition = Condition(
        type="Ready",
        status="True" if phase is PoolPhase.READY else "False",
        reason=reason,
        message=message,
        observed_generation=generation,
        last_transition_time=now,
    )
    return old.model_copy(
        update={
            "available": available,
            "claimed": claimed,
            "phase": phase,
            "observed_generation": generation,
            "last_sync_time": now,
            "conditions": with_condition(old.conditions, condition),
        }
    )
