"""What a unit or a storage says while its pod is not Ready: what was observed, and no cause that was not."""

from dataclasses import replace

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from reconciler.storages.status import judge_accessor
from reconciler.units.pod_status import describe_wait, find_node_problem
from tests.support.builders import make_pod, make_storage, make_unit
from tests.unit.reconciler.storages.observed import make_observed
from tests.unit.reconciler.units.observed import message, observe, plan, ready_reason

NODE = "sim-h100-0"
AWAY = {NODE: "NodeStatusUnknown: Kubelet stopped posting node status."}
ON_AWAY = f"its pod is on node {NODE}, which is not Ready (NodeStatusUnknown: Kubelet stopped posting node status.)"
QUOTA = 'pods "unit-demo-1" is forbidden: exceeded quota: tenant'
UNREADY = {"type": "Ready", "status": "False", "message": "containers with unready status: [runtime-worker]"}
BROWSER = make_pod(labels={names.LABEL_STORAGE_ACCESSOR: "uid"})


def leaving(pod: Json) -> Json:
    return {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2030-01-01T00:00:00Z"}}


def deployment(**failure: str) -> Json:
    return {"status": {"conditions": [{"type": "Available", "status": "False"}, *([failure] if failure else [])]}}


@pytest.mark.parametrize(
    ("pods", "away", "live", "words"),
    [
        ((make_pod(),), AWAY, None, ON_AWAY),
        ((make_pod(phase="Running"),), AWAY, None, ON_AWAY),
        ((leaving(make_pod()),), AWAY, None, ON_AWAY),
        ((leaving(make_pod()), make_pod("other", node="sim-t4-0")), AWAY, None, "its pod is starting"),
        ((make_pod(node="sim-t4-0"),), AWAY, None, "its pod is starting"),
        (
            (make_pod(phase="Running", conditions=[UNREADY]),),
            {},
            None,
            "its pod runs and is not ready: containers with unready status: [runtime-worker]",
        ),
        ((make_pod(phase="Running"),), {}, None, "its pod runs and is not ready"),
        ((make_pod(),), {}, None, "its pod is starting"),
        ((make_pod(node=None),), {}, None, "its pod is starting"),
        ((leaving(make_pod(phase="Running")),), {}, None, "its earlier pod is being deleted"),
        (
            (),
            {},
            deployment(type="ReplicaFailure", status="True", message=QUOTA),
            f"its pod cannot be created: {QUOTA}",
        ),
        ((), {}, deployment(type="ReplicaFailure", status="False", message=QUOTA), "its pod is not created yet"),
        ((), {}, deployment(), "its pod is not created yet"),
        ((), {}, None, "its pod is not created yet"),
    ],
)
def test_a_wait_is_told_by_what_was_seen(pods: tuple[Json, ...], away: Json, live: Json | None, words: str) -> None:
    assert describe_wait(pods, away, live) == words


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ([{"type": "Ready", "status": "True", "reason": "KubeletReady"}], None),
        (
            [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "gone"}],
            "NodeStatusUnknown: gone",
        ),
        ([{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}], "KubeletNotReady"),
        ([{"type": "Ready", "status": "False"}], "Ready is False"),
        ([{"type": "DiskPressure", "status": "True"}], "it has not reported yet"),
        ([], "it has not reported yet"),
    ],
)
def test_a_node_that_is_not_ready_is_quoted(conditions: list[Json], words: str | None) -> None:
    assert find_node_problem({"status": {"conditions": conditions}}) == words


def test_a_unit_on_a_node_that_is_away_stays_progressing_and_names_the_node() -> None:
    observed = observe(make_unit(), pods=(make_pod(phase="Running", conditions=[UNREADY]),))

    away = plan(replace(observed, away=AWAY))

    assert message(away) == ON_AWAY
    assert ready_reason(away) == ready_reason(plan(observed)) == ("Progressing", "UnitProgressing")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"claim": {"status": {"phase": "Pending"}}}, "waits for the volume"),
        ({"claim": None, "binds_late": True}, "waits for the volume, which comes with the first unit"),
        ({"claim": {"status": {"phase": "Bound"}}}, "its pod is not created yet"),
        ({"claim": {"status": {"phase": "Bound"}}, "away": AWAY, "pods": (BROWSER,)}, ON_AWAY),
    ],
)
def test_a_file_browser_that_is_not_ready_says_what_was_seen(changes: Json, why: str) -> None:
    observed = make_observed(make_storage(accessor={"enabled": True}), **changes)

    assert judge_accessor(observed, enabled=True)[1] == why
