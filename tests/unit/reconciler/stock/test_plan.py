"""The table of `plan_pool`, row by row."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.conditions import find_condition
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.specs import GPUSpecSpec
from gpu_platform.domain.stock import HANDOFF_LIMIT, PoolPhase, PoolReason, StockPoolSpec, rank_stock
from reconciler.guarded_writes import CreateObject, DeleteObject
from reconciler.stock.plan import BATCH, Observed, Plan, plan_pool
from tests.support.builders import NOW, make_pool, make_stock, make_unit

CATALOGUE = GPUSpecSpec(memory="16Gi", gpu=1)


def observe(pool: Json, *stock: Json, instances: tuple[Json, ...] = ()) -> Observed:
    return Observed(
        pool=pool,
        spec=StockPoolSpec.model_validate(pool["spec"]),
        catalogue=CATALOGUE,
        stock=stock,
        instances=instances,
    )


def created(plan: Plan) -> list[str]:
    return [write.body["metadata"]["name"] for write in plan.writes if isinstance(write, CreateObject)]


def removed(plan: Plan) -> list[str]:
    return [
        write.seen["metadata"]["name"] for write in plan.writes if isinstance(write, DeleteObject) and write.unchanged
    ]


def reason_of(plan: Plan) -> tuple[PoolPhase | None, str]:
    condition = find_condition(plan.status.conditions, "Ready")
    assert condition is not None
    return plan.status.phase, condition.reason


def instance_from(stock: str, uid: str) -> Json:
    unit = make_unit(f"from-{stock}")
    unit["metadata"] |= {"uid": uid, "annotations": {names.ANNOTATION_SOURCE_STOCK_NAME: stock}}
    return unit


def test_an_empty_pool_makes_the_lowest_ordinals_with_the_specs_size() -> None:
    plan = plan_pool(observe(make_pool(2)), NOW)
    assert created(plan) == ["pool-0", "pool-1"]
    [first, _] = [write.body for write in plan.writes if isinstance(write, CreateObject)]
    assert first["spec"]["memory"] == "16Gi"
    assert first["spec"]["gpu"] == 1
    assert first["metadata"]["labels"][names.LABEL_STOCK_STATE] == names.STOCK_FREE
    assert first["metadata"]["ownerReferences"][0]["uid"] == "uid-pool"


def test_a_claimed_unit_is_replaced_under_another_name() -> None:
    claimed = make_stock("pool-0", claimed_by="a/b")
    plan = plan_pool(observe(make_pool(2), claimed, make_stock("pool-1")), NOW + HANDOFF_LIMIT)
    assert created(plan) == ["pool-2"]
    assert (plan.status.available, plan.status.claimed) == (1, 1)


@pytest.mark.parametrize(
    ("replicas", "available", "waits"),
    [(1, 0, False), (2, 0, False), (2, 1, True), (3, 1, False), (3, 2, True), (4, 1, False), (4, 2, True)],
)
def test_the_refill_waits_for_a_hand_off_while_half_can_be_claimed(replicas: int, available: int, waits: bool) -> None:
    claimed = make_stock("claimed", claimed_by="a/b")
    free = [make_stock(f"pool-{ordinal}") for ordinal in range(available)]
    plan = plan_pool(observe(make_pool(replicas), claimed, *free), NOW)
    assert plan.wait == (HANDOFF_LIMIT - timedelta(seconds=1) if waits else None)
    assert created(plan) == ([] if waits else [f"pool-{ordinal}" for ordinal in range(available, replicas)])


def test_stock_that_is_not_ready_does_not_keep_the_refill_waiting() -> None:
    claimed, starting = make_stock("pool-0", claimed_by="a/b"), make_stock("pool-1", phase="Progressing")
    assert created(plan_pool(observe(make_pool(2), claimed, starting), NOW)) == ["pool-2"]


def test_claims_that_follow_each_other_do_not_empty_the_pool() -> None:
    """A hand-off is under way all the time; still, what was claimed is made anew once half of it is gone."""
    free = [f"pool-{ordinal}" for ordinal in range(4)]
    claimed: list[str] = []
    for _ in range(8):
        claimed.append(free.pop(0))
        stock = [*(make_stock(name, claimed_by="a/b") for name in claimed), *map(make_stock, free)]
        free += created(plan_pool(observe(make_pool(4), *stock), NOW))
        assert len(free) >= 2


def test_a_full_pool_writes_nothing_and_is_ready() -> None:
    plan = plan_pool(observe(make_pool(2), make_stock("pool-0"), make_stock("pool-1")), NOW)
    assert plan.writes == ()
    assert reason_of(plan) == (PoolPhase.READY, PoolReason.DEPLOYMENT_READY)


def test_shrinking_takes_unready_then_youngest_and_never_what_is_claimed() -> None:
    old = make_stock("pool-0", creationTimestamp="2030-01-01T10:00:00Z")
    young = make_stock("pool-1", creationTimestamp="2030-01-01T11:00:00Z")
    unready = make_stock("pool-2", phase="Progressing", creationTimestamp="2030-01-01T09:00:00Z")
    claimed = make_stock("pool-3", claimed_by="a/b")
    assert removed(plan_pool(observe(make_pool(1), old, young, unready, claimed), NOW)) == ["pool-2", "pool-1"]
    assert removed(plan_pool(observe(make_pool(0), claimed), NOW)) == []


def test_a_large_pool_fills_in_batches() -> None:
    plan = plan_pool(observe(make_pool(BATCH + 1)), NOW)
    assert len(plan.writes) == BATCH
    assert not plan.is_complete


def test_a_unit_on_its_way_out_keeps_its_name() -> None:
    leaving = make_stock("pool-0", deletionTimestamp="2030-01-01T12:00:00Z")
    assert created(plan_pool(observe(make_pool(1), leaving), NOW)) == ["pool-1"]


def test_zero_replicas_is_ready_and_says_so() -> None:
    assert reason_of(plan_pool(observe(make_pool(0)), NOW)) == (PoolPhase.READY, PoolReason.SCALED_TO_ZERO)


@pytest.mark.parametrize("broken", ["namespace", "catalogue"])
def test_a_pool_that_cannot_be_filled_fails_and_makes_nothing(broken: str) -> None:
    observed = observe(make_pool(2))
    if broken == "namespace":
        observed.pool["metadata"]["namespace"] = "elsewhere"
    else:
        observed = replace(observed, catalogue=None)
    plan = plan_pool(observed, NOW)
    assert plan.writes == ()
    assert reason_of(plan) == (PoolPhase.FAILED, PoolReason.INVALID_SPEC)


def test_never_makes_each_ordinal_once() -> None:
    pool = make_pool(2, replenish="Never")
    first = plan_pool(observe(pool), NOW)
    assert created(first) == ["pool-0", "pool-1"]
    assert first.status.seeded == 2
    emptied = make_pool(2, replenish="Never", status=first.status.to_json())
    assert created(plan_pool(observe(emptied), NOW)) == []


def test_never_does_not_make_again_what_a_tenant_took_before_the_mark_was_written() -> None:
    taken = instance_from("pool-0", "uid-1")
    plan = plan_pool(observe(make_pool(2, replenish="Never"), instances=(taken,)), NOW)
    assert created(plan) == ["pool-1"]
    assert plan.status.lent == ("uid-1/pool-0",)


def test_never_takes_one_back_when_a_unit_from_it_is_deleted_and_only_once() -> None:
    lending = make_pool(1, replenish="Never", status={"seeded": 1, "lent": ["uid-1/pool-0"]})
    plan = plan_pool(observe(lending), NOW)
    [name] = created(plan)
    assert name.startswith("pool-r")
    assert plan.status.lent == ()
    settled = make_pool(1, replenish="Never", status=plan.status.to_json())
    assert plan_pool(observe(settled, make_stock(name)), NOW).writes == ()


def test_never_takes_one_back_for_every_time_that_a_unit_is_stopped() -> None:
    """Each start took another stock unit."""
    made = []
    for source in ("pool-0", "pool-1"):
        lending = make_pool(2, replenish="Never", status={"seeded": 2, "lent": [f"uid-1/{source}"]})
        unit = instance_from(source, "uid-1")
        assert plan_pool(observe(lending, instances=(unit,)), NOW).writes == ()
        stopped = {**unit, "spec": {**unit["spec"], "running": False}}
        made += created(plan_pool(observe(lending, instances=(stopped,)), NOW))
    assert len(set(made)) == 2


def test_never_is_ready_when_all_of_it_is_rented() -> None:
    lending = make_pool(1, replenish="Never", status={"seeded": 1, "lent": ["uid-1/pool-0"]})
    plan = plan_pool(observe(lending, instances=(instance_from("pool-0", "uid-1"),)), NOW)
    assert (plan.status.phase, plan.status.available) == (PoolPhase.READY, 0)


def test_never_grows_by_the_new_ordinals_only() -> None:
    grown = make_pool(3, replenish="Never", status={"seeded": 2})
    assert created(plan_pool(observe(grown), NOW)) == ["pool-2"]


def test_stock_that_is_not_ready_or_claimed_is_never_chosen_and_the_oldest_goes_first() -> None:
    """Parity 18."""
    stock = [
        make_stock("c", creationTimestamp="2030-01-01T09:00:00Z", phase="Progressing"),
        make_stock("b", creationTimestamp="2030-01-01T10:00:00Z"),
        make_stock("a", creationTimestamp="2030-01-01T10:00:00Z"),
        make_stock("d", creationTimestamp="2030-01-01T08:00:00Z", claimed_by="x/y"),
        make_stock("e", creationTimestamp="2030-01-01T07:00:00Z", deletionTimestamp="2030-01-01T12:00:00Z"),
        make_stock("f", creationTimestamp="2030-01-01T11:00:00Z"),
    ]
    assert [unit["metadata"]["name"] for unit in rank_stock(stock, "g1.1")] == ["a", "b", "f"]
    assert rank_stock(stock, "other") == ()
