"""How long workers took to come: each is counted once, by whoever saw it start."""

from datetime import datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from reconciler.functions.workers import WorkerStarts, measure_start
from tests.support.builders import NOW, make_unit

FUNCTION = ("runtime-instance", "words")
FIGURE = "gpu_platform_reconciler_worker_start_seconds"
LATER = NOW + timedelta(seconds=3)


def worker(phase: str, woken_at: str | None = NOW.isoformat()) -> Json:
    unit = make_unit("words-worker-0")
    claimed = (NOW + timedelta(milliseconds=20)).isoformat()
    marks = {names.ANNOTATION_WOKEN_AT: woken_at, names.ANNOTATION_CLAIMED_AT: claimed}
    unit["metadata"]["annotations"] = {name: text for name, text in marks.items() if text is not None}
    return {**unit, "status": {"phase": phase}}


def pod(scheduled_at: datetime, status: str = "True") -> Json:
    condition = {"type": "PodScheduled", "status": status, "lastTransitionTime": scheduled_at.isoformat()}
    return {"status": {"conditions": [condition]}}


def counted(registry: CollectorRegistry) -> float:
    return registry.get_sample_value(f"{FIGURE}_count", {"phase": "ready"}) or 0


def test_each_step_counts_from_the_decision() -> None:
    measured = dict(measure_start(worker("Ready"), [pod(NOW + timedelta(seconds=1))], LATER))

    assert measured == {"claimed": pytest.approx(0.02), "scheduled": 1.0, "ready": 3.0}


def test_a_condition_that_tells_whole_seconds_is_never_before_the_decision() -> None:
    assert dict(measure_start(worker("Ready"), [pod(NOW - timedelta(seconds=1))], LATER))["scheduled"] == 0.0


@pytest.mark.parametrize("woken_at", [None, "", "soon", "2030-01-01T12:00:00"])
def test_a_unit_that_does_not_say_when_it_was_wanted_is_not_measured(woken_at: str | None) -> None:
    assert not list(measure_start(worker("Ready", woken_at), [], LATER))


def test_a_pod_without_a_node_is_not_scheduled() -> None:
    assert "scheduled" not in dict(measure_start(worker("Ready"), [pod(NOW, "False")], LATER))


def test_a_worker_is_counted_once_when_it_becomes_ready() -> None:
    registry = CollectorRegistry()
    starts = WorkerStarts(registry, lambda: LATER)

    for phase in ("Progressing", "Progressing", "Ready", "Ready"):
        starts.note(FUNCTION, [worker(phase)], lambda _: ())

    assert counted(registry) == 1


def test_a_worker_that_was_ready_before_anybody_looked_is_not_counted() -> None:
    registry = CollectorRegistry()
    WorkerStarts(registry, lambda: LATER).note(FUNCTION, [worker("Ready")], lambda _: ())

    assert counted(registry) == 0
