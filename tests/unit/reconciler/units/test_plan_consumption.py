"""When claimed stock ends: the rows of `plan_unit` about its holder."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reconciler.guarded_writes import DeleteObject
from reconciler.units.observe import Observed
from reconciler.units.plan import CONSUME_LIMIT, plan_unit
from tests.support.builders import NOW, make_pod, make_stock, make_unit
from tests.unit.reconciler.units.observed import SETTINGS, observe, plan, settle

CONSUMED = (DeleteObject("GPUUnit", make_stock(claimed_by="runtime-instance/demo")),)


def test_claimed_stock_is_consumed_once_its_holder_is_ready() -> None:
    ready = {**make_unit(), "status": {"phase": "Ready"}}
    result = plan(replace(claimed_stock(), holder=ready, holder_pods=(make_pod(),)))
    assert result.writes == CONSUMED


def test_claimed_stock_does_not_wait_long_for_a_holder_that_has_a_place() -> None:
    scheduled = replace(claimed_stock(), holder=make_unit(), holder_pods=(make_pod(),))
    result = plan(scheduled)
    assert (result.writes, result.requeue_after) == ((), CONSUME_LIMIT - timedelta(seconds=1))
    late = plan_unit(scheduled, SETTINGS, NOW + CONSUME_LIMIT)
    assert late.writes == CONSUMED


def test_claimed_stock_stands_while_its_holder_has_no_place() -> None:
    waiting = replace(claimed_stock(), holder=make_unit(), holder_pods=(make_pod(node=None),))
    late = plan_unit(waiting, SETTINGS, NOW + timedelta(minutes=5))
    assert not any(isinstance(write, DeleteObject) for write in late.writes)


def test_a_pod_of_the_holders_earlier_life_does_not_count() -> None:
    """It was stopped, and starts again on this stock."""
    old = make_pod()
    old["metadata"]["deletionTimestamp"] = "2030-01-01T12:00:00Z"
    started = replace(claimed_stock(), holder={**make_unit(), "status": {"phase": "Ready"}}, holder_pods=(old,))
    late = plan_unit(started, SETTINGS, NOW + timedelta(minutes=5))
    assert not any(isinstance(write, DeleteObject) for write in late.writes)


def claimed_stock() -> Observed:
    """Claimed a second ago."""
    settled = settle(observe(make_stock()), is_ready=True)
    return replace(settled, unit=make_stock(claimed_by="runtime-instance/demo"), is_claimed_stock=True)


@pytest.mark.parametrize("change", [{"spec": {"running": False}}, {"metadata": {"deletionTimestamp": "2030-01-01"}}])
def test_claimed_stock_is_consumed_when_its_holder_no_longer_wants_it(change: dict[str, Any]) -> None:
    unit = make_unit()
    holder = {**unit, **{part: {**unit[part], **fields} for part, fields in change.items()}}
    given_up = replace(claimed_stock(), holder=holder)
    assert not any(isinstance(write, DeleteObject) for write in plan(given_up).writes)
    late = plan_unit(given_up, SETTINGS, NOW + CONSUME_LIMIT)
    assert late.writes == CONSUMED
