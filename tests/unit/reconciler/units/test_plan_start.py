"""Starting a unit that was stopped: the rows of `plan_unit` about a Deployment at 0 replicas."""

from dataclasses import replace
from datetime import timedelta

from gpu_platform.domain import names
from gpu_platform.domain.stock import HANDOFF_LIMIT
from gpu_platform.domain.units import Phase
from reconciler.child_diff import UnitChild
from reconciler.guarded_writes import ReplaceObject
from reconciler.units.observe import Observed, SourceStock
from reconciler.units.plan import Plan, plan_unit
from tests.support.builders import NOW, as_stored, make_pod, make_stock, make_unit
from tests.unit.reconciler.units.observed import HTTP, SETTINGS, observe, plan, settle, with_child

FIRST_NODE = "sim-a100-0"
NEXT_NODE = "sim-h100-0"


def started(*, stock_has_pod: bool) -> Observed:
    """Ran once, was stopped, and is to run in the place of stock that was claimed a second ago."""
    unit = make_unit(template=HTTP)
    unit["metadata"]["annotations"] = {names.ANNOTATION_SOURCE_STOCK_NAME: "pool-7"}
    first = make_stock("pool-0", claimed_by="runtime-instance/demo")
    first["status"]["nodeName"] = FIRST_NODE
    ran = settle(observe(unit, source=SourceStock(first, (), NOW)), is_ready=True)
    stopped = replace(ran, unit=make_unit(template=HTTP, running=False), source=None, pods=())
    [scaled] = [write for write in plan(stopped).writes if isinstance(write, ReplaceObject)]
    stock = make_stock("pool-7", claimed_by="runtime-instance/demo")
    pods = (make_pod("stock-pod"),) if stock_has_pod else ()
    source = SourceStock(stock, pods, claimed_at=NOW - timedelta(seconds=1))
    at_zero = with_child(stopped, UnitChild.DEPLOYMENT, as_stored(scaled.body))
    return replace(at_zero, unit=unit, source=source)


def scaled_up(result: Plan) -> bool:
    return any(
        write.kind is UnitChild.DEPLOYMENT and write.body["spec"]["replicas"] == 1
        for write in result.writes
        if isinstance(write, ReplaceObject)
    )


def test_the_deployment_of_a_stopped_unit_stays_at_0_until_its_stocks_pod_is_gone() -> None:
    waiting = plan(started(stock_has_pod=True))
    assert waiting.writes == ()
    assert waiting.requeue_after == HANDOFF_LIMIT - timedelta(seconds=1)
    assert waiting.status.phase is Phase.PROGRESSING
    assert scaled_up(plan(started(stock_has_pod=False)))


def test_a_started_unit_does_not_wait_for_ever() -> None:
    assert scaled_up(plan_unit(started(stock_has_pod=True), SETTINGS, NOW + HANDOFF_LIMIT))


def test_a_started_unit_prefers_the_node_of_its_new_stock_and_keeps_that_wish() -> None:
    observed = started(stock_has_pod=False)
    [write] = [write for write in plan(observed).writes if isinstance(write, ReplaceObject)]
    wish = str(write.body["spec"]["template"]["spec"]["affinity"])
    assert NEXT_NODE in wish
    assert FIRST_NODE not in wish
    written = with_child(observed, UnitChild.DEPLOYMENT, as_stored(write.body))
    assert plan(replace(written, source=None)).writes == ()


def test_a_unit_that_starts_without_stock_is_scaled_up_at_once_and_prefers_what_it_did() -> None:
    [write] = plan(replace(started(stock_has_pod=False), source=None)).writes
    assert isinstance(write, ReplaceObject)
    assert FIRST_NODE in str(write.body["spec"]["template"]["spec"]["affinity"])


def test_a_started_unit_is_not_ready_by_a_pod_of_its_earlier_life() -> None:
    observed = started(stock_has_pod=False)
    assert observed.deployment is not None
    ready = [{"type": "Ready", "status": "True"}]
    labels = observed.deployment["spec"]["template"]["metadata"]["labels"]
    old = make_pod(conditions=ready, labels=labels)
    for source in (observed.source, None):
        assert plan(replace(observed, source=source, pods=(old,))).status.phase is Phase.PROGRESSING
