"""What a pass knows about a unit, and what its plan says, for tests of its decisions."""

from dataclasses import replace
from typing import Any

from gpu_platform.domain.conditions import find_condition
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.specs import GPUSpecSpec
from gpu_platform.domain.units import Phase
from reconciler.child_diff import UnitChild
from reconciler.guarded_writes import CreateObject
from reconciler.units.observe import Observed
from reconciler.units.plan import Plan, UnitSettings, plan_unit
from reconciler.units.ssh_resources import SshSettings
from tests.support.builders import NOW, as_stored, make_pod

SSH = SshSettings("example/sshd:1", "example/frpc:1")
SETTINGS = UnitSettings("busybox:1.36", ("10.0.0.0/8", "fc00::/7"), SSH)
CATALOGUE = GPUSpecSpec(memory="16Gi", gpu=1, cpu="4")
HTTP = {"ports": [{"name": "http", "port": 8000}]}
READY = [{"type": "Ready", "status": "True"}]


def observe(unit: Json, **changes: Any) -> Observed:
    observed = Observed(
        unit=unit,
        catalogue=CATALOGUE,
        restricted=False,
        children={},
        leftovers={},
        pods=(),
        is_claimed_stock=False,
        holder=None,
        holder_pods=(),
        source=None,
        claims_under_way=(),
        stock_lurks=False,
    )
    return replace(observed, **changes)


def settle(observed: Observed, *, is_ready: bool = False) -> Observed:
    """The same unit after its planned children were written, and perhaps its pod became ready."""
    return with_written(observed, plan(observed), is_ready=is_ready)


def with_written(observed: Observed, planned: Plan, *, is_ready: bool) -> Observed:
    written = {
        UnitChild(write.kind): as_stored(write.body) for write in planned.writes if isinstance(write, CreateObject)
    }
    template = written[UnitChild.DEPLOYMENT]["spec"]["template"]
    pod = make_pod(conditions=READY, labels=template["metadata"]["labels"])
    return replace(observed, children=written, pods=(pod,) if is_ready else ())


def with_child(observed: Observed, kind: UnitChild, live: Json | None) -> Observed:
    """The same with this one as it is now, or without it."""
    others = {each: item for each, item in observed.children.items() if each is not kind}
    return replace(observed, children={**others, kind: live} if live is not None else others)


def plan(observed: Observed) -> Plan:
    return plan_unit(observed, SETTINGS, NOW)


def ready_reason(result: Plan) -> tuple[Phase | None, str]:
    condition = find_condition(result.status.conditions, "Ready")
    assert condition is not None
    return result.status.phase, condition.reason


def message(result: Plan) -> str:
    condition = find_condition(result.status.conditions, "Ready")
    assert condition is not None
    return condition.message
