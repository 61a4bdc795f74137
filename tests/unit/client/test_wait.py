"""When an object is as it was waited for."""

import pytest

from gpu_platform.api_models.stacks import PreviewView
from gpu_platform.api_models.stock import JobView, PoolView, StockUnitView
from gpu_platform.api_models.units import UnitView
from gpu_platform.client.wait import (
    UNPROBED_SECONDS,
    Outcome,
    find_steady_seconds,
    judge_gone,
    judge_job,
    judge_preview,
    judge_ready,
    judge_recorded,
    judge_seeded,
    judge_settled,
)
from gpu_platform.domain.json_text import Json
from tests.unit.client import views


@pytest.mark.parametrize(
    ("probes", "phase", "seconds"),
    [
        (None, "Ready", UNPROBED_SECONDS),
        ({"liveness": {"command": ["true"]}}, "Ready", UNPROBED_SECONDS),
        ({"readiness": {"command": ["true"]}}, "Ready", 0),
        ({"startup": {"command": ["true"]}}, "Ready", 0),
        (None, "Stopped", 0),
    ],
)
def test_how_long_a_unit_must_stay_in_its_phase(probes: Json | None, phase: str, seconds: float) -> None:
    unit = UnitView.model_validate(views.unit(template={"probes": probes}))
    assert find_steady_seconds(unit, phase) == seconds


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        (None, Outcome.FAILED),
        (views.unit(generation=2, observedGeneration=2), Outcome.DONE),
        (views.unit(generation=3, observedGeneration=3), Outcome.DONE),
        (views.unit(generation=1, observedGeneration=1), Outcome.NOT_YET),
        (views.unit(generation=2, observedGeneration=1), Outcome.NOT_YET),
        (views.unit(generation=2, observedGeneration=None), Outcome.NOT_YET),
        (views.unit(generation=2, observedGeneration=2, phase="Progressing"), Outcome.NOT_YET),
        (views.unit(generation=2, observedGeneration=2, phase="Failed"), Outcome.FAILED),
        (views.unit(generation=1, observedGeneration=1, phase="Failed"), Outcome.NOT_YET),
        (views.unit(generation=2, observedGeneration=1, phase="Terminating"), Outcome.FAILED),
    ],
)
def test_a_unit_is_ready_when_the_accepted_spec_is(seen: Json | None, outcome: Outcome) -> None:
    unit = UnitView.model_validate(seen) if seen else None
    assert judge_settled(unit, "Ready", 2).outcome is outcome


def test_a_unit_is_gone_when_the_api_does_not_know_it() -> None:
    assert judge_gone(None).outcome is Outcome.DONE
    assert judge_gone(UnitView.model_validate(views.unit())).outcome is Outcome.NOT_YET


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("pending", Outcome.NOT_YET),
        ("running", Outcome.NOT_YET),
        ("succeeded", Outcome.DONE),
        ("failed", Outcome.FAILED),
    ],
)
def test_a_job_is_done_when_it_succeeded(status: str, outcome: Outcome) -> None:
    assert judge_job(JobView.model_validate(views.job(status))).outcome is outcome


@pytest.mark.parametrize(
    ("states", "outcome"),
    [
        ([], Outcome.DONE),
        (["available", "claimed"], Outcome.DONE),
        (["available", "waiting"], Outcome.NOT_YET),
    ],
)
def test_seeded_stock_is_there_when_none_of_it_waits(states: list[str], outcome: Outcome) -> None:
    stock = tuple(StockUnitView.model_validate(views.stock_unit(state=state)) for state in states)

    assert judge_seeded(stock).outcome is outcome


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        (None, Outcome.FAILED),
        (views.pool(), Outcome.DONE),
        (views.pool(observedGeneration=None), Outcome.NOT_YET),
        (views.pool(phase="Progressing"), Outcome.NOT_YET),
        (views.pool(phase="Failed"), Outcome.FAILED),
        (views.pool(phase="Terminating"), Outcome.FAILED),
    ],
)
def test_a_pool_is_full_when_it_is_ready(seen: Json | None, outcome: Outcome) -> None:
    assert judge_ready(PoolView.model_validate(seen) if seen else None).outcome is outcome


@pytest.mark.parametrize(
    ("phase", "outcome"),
    [
        ("Pending", Outcome.NOT_YET),
        ("Running", Outcome.NOT_YET),
        ("Succeeded", Outcome.DONE),
        ("Failed", Outcome.FAILED),
    ],
)
def test_a_preview_is_done_when_its_phase_says_so(phase: str, outcome: Outcome) -> None:
    preview = PreviewView.model_validate(views.preview(phase))
    assert judge_preview(preview).outcome is outcome


def test_what_is_gone_is_waited_for_no_longer() -> None:
    assert judge_preview(None).outcome is Outcome.FAILED
    assert judge_recorded(None).outcome is Outcome.FAILED
