"""What to do about one pool: which stock to make, which to take away, what to say of it. Pure."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count, islice

from gpu_platform.domain import names
from gpu_platform.domain.conditions import set_condition
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of, build_object
from gpu_platform.domain.specs import GPUSpecSpec
from gpu_platform.domain.stock import (
    HANDOFF_LIMIT,
    PoolPhase,
    PoolReason,
    StockPoolSpec,
    StockPoolStatus,
    claimed_at,
    is_available,
    is_claimed,
)
from gpu_platform.domain.units import GPUUnitSpec, Phase
from reconciler.guarded_writes import CreateObject, DeleteObject

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
class Plan:
    writes: tuple[CreateObject | DeleteObject, ...]
    status: StockPoolStatus
    is_complete: bool
    """False: the batch was full, look again at once."""

    wait: timedelta | None = None
    """A hand-off is under way; its end brings the next pass, or this."""


def plan_pool(observed: Observed, now: datetime) -> Plan:
    """
    | pool                                   | writes                                        | phase · reason             |
    | -------------------------------------- | --------------------------------------------- | -------------------------- |
    | being deleted                          | none (its stock goes by owner reference)      | Terminating                |
    | not in the stock namespace, no GPUSpec | none                                          | Failed · InvalidSpec       |
    | Always, fewer free than replicas, a    | none, look again when it is over              | as it was                  |
    | hand-off under way, half is available  |                                               |                            |
    | Always, fewer free than replicas       | make the missing, lowest free ordinals        | by the free units          |
    | Always, more free than replicas        | remove: not ready first, then the youngest    | by the free units          |
    | Never, ordinals above the mark         | make them once, and move the mark             | by the free units          |
    | Never, a unit from here was deleted or | make one for it                               | by the free units          |
    | stopped                                |                                               |                            |
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
    if missing > 0 and (wait := _handoff_wait(observed, now)) is not None:
        return Plan((), StockPoolStatus.of(observed.pool), is_complete=True, wait=wait)
    creates = [_create(observed, name) for name in islice(_free_names(observed), max(0, missing))]
    # Only as they were seen: a claim that came in between wins.
    removals = [DeleteObject("GPUUnit", unit, unchanged=True) for unit in _expendable(free)[: max(0, -missing)]]
    writes: tuple[CreateObject | DeleteObject, ...] = (*creates, *removals)
    status = _status(observed, now, expected=observed.spec.replicas)
    return Plan(writes[:BATCH], status, is_complete=len(writes) <= BATCH)


def _handoff_wait(observed: Observed, now: datetime) -> timedelta | None:
    """How long the refill waits for a hand-off: it would only slow the tenant down, and could not take its place
    before. It waits only while at least half of the replicas can be claimed: there is always a hand-off under way
    when one claim follows the other, and the pool would be empty before it is refilled."""
    living = _living(observed)
    if 2 * sum(map(is_available, living)) < observed.spec.replicas:
        return None
    ends = [at + HANDOFF_LIMIT for unit in living if is_claimed(unit) and (at := claimed_at(unit, now))]
    left = max((end - now for end in ends), default=timedelta())
    return left if left > timedelta() else None


def _plan_once(observed: Observed, now: datetime) -> Plan:
    old = StockPoolStatus.of(observed.pool)
    present = {unit["metadata"]["name"] for unit in observed.stock}
    # A crash may have come between making a unit and moving the mark; by now it may even be a tenant's.
    taken = {_source_of(unit) for unit in observed.instances}
    ordinals = range(old.seeded, observed.spec.replicas)[:BATCH]
    names_above_mark = [names.stock_unit_name(observed.pool["metadata"]["name"], ordinal) for ordinal in ordinals]
    seeds = [_create(observed, name) for name in names_above_mark if name not in present | taken]
    lent = {_loan(unit) for unit in observed.instances if unit["spec"].get("running", True)}
    returned = [loan for loan in old.lent if loan not in lent][: BATCH - len(seeds)]
    returns = [_create(observed, _returned_name(observed.pool, loan)) for loan in returned]
    seeded = old.seeded + len(ordinals)
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


def _free_names(observed: Observed) -> Iterator[str]:
    """Names that no unit has, not even one on its way out; by ordinal."""
    present = {unit["metadata"]["name"] for unit in observed.stock}
    pool = observed.pool["metadata"]["name"]
    all_names = (names.stock_unit_name(pool, ordinal) for ordinal in count())
    return (name for name in all_names if name not in present)


def _expendable(free: list[Json]) -> list[Json]:
    """Youngest first, but before them whatever is not ready."""

    def rank(unit: Json) -> tuple[bool, str, str]:
        return not is_available(unit), unit["metadata"]["creationTimestamp"], unit["metadata"]["name"]

    return sorted(free, key=rank, reverse=True)


def _create(observed: Observed, name: str) -> CreateObject:
    pool = observed.pool["metadata"]
    catalogue = observed.catalogue
    owner = names.owner_reference("StockPool", pool["name"], pool["uid"])
    spec = GPUUnitSpec(
        spec_name=observed.spec.spec_name,
        image=observed.spec.image,
        memory=catalogue.memory if catalogue else None,
        gpu=catalogue.gpu if catalogue else None,
    )
    labels = {names.LABEL_POOL: pool["name"], names.LABEL_STOCK_STATE: names.STOCK_FREE}
    return CreateObject("GPUUnit", build_object("GPUUnit", name, pool["namespace"], spec, labels=labels, owner=owner))


def _loan(unit: Json) -> str:
    """One stock unit that became this unit. A unit that was stopped and started again took another one."""
    return f"{unit['metadata']['uid']}/{_source_of(unit)}"


def _returned_name(pool: Json, loan: str) -> str:
    """One name per loan: making it twice is making it once."""
    return f"{pool['metadata']['name']}-r{hashlib.sha256(loan.encode()).hexdigest()[:8]}"


def _source_of(unit: Json) -> str | None:
    return annotations_of(unit).get(names.ANNOTATION_SOURCE_STOCK_NAME)


def _status(observed: Observed, now: datetime, *, expected: int | None) -> StockPoolStatus:
    """Without an expected number, all free units have to be ready."""
    free = [unit for unit in _living(observed) if not is_claimed(unit)]
    available = sum(is_available(unit) for unit in free)
    wanted = len(free) if expected is None else expected
    failed = [unit for unit in free if unit.get("status", {}).get("phase") == Phase.FAILED]
    if observed.spec.replicas == 0 and not free:
        phase, reason, message = PoolPhase.READY, PoolReason.SCALED_TO_ZERO, "holds no stock"
    elif available >= wanted and (free or _is_all_rented(observed)):
        phase, reason, message = PoolPhase.READY, PoolReason.DEPLOYMENT_READY, f"{available} free units are ready"
    else:
        message = f"{available} of {wanted} free units are ready"
        if failed:
            message += f"; {len(failed)} cannot start, the first is {failed[0]['metadata']['name']}"
        phase, reason = PoolPhase.PROGRESSING, PoolReason.DEPLOYMENT_PROGRESSING
    return _with_verdict(observed, phase, reason, message, now)


def _is_all_rented(observed: Observed) -> bool:
    """A pool that was to make its stock once has made it, and all of it is in use."""
    status = StockPoolStatus.of(observed.pool)
    return observed.spec.replenish == "Never" and status.seeded >= observed.spec.replicas and bool(status.lent)


def _verdict_only(observed: Observed, phase: PoolPhase, reason: PoolReason, message: str, now: datetime) -> Plan:
    return Plan((), _with_verdict(observed, phase, reason, message, now), is_complete=True)


def _with_verdict(
    observed: Observed, phase: PoolPhase, reason: PoolReason, message: str, now: datetime
) -> StockPoolStatus:
    """The status with this verdict, and the units counted as they are in this pass."""
    old = StockPoolStatus.of(observed.pool)
    living = _living(observed)
    generation = observed.pool["metadata"].get("generation")
    conditions = set_condition(
        old.conditions,
        "Ready",
        is_met=phase is PoolPhase.READY,
        reason=reason,
        message=message,
        generation=generation,
        now=now,
    )
    return old.model_copy(
        update={
            "available": sum(map(is_available, living)),
            "claimed": sum(map(is_claimed, living)),
            "phase": phase,
            "observed_generation": generation,
            "last_sync_time": now,
            "conditions": conditions,
        }
    )
