"""What is made of the measured times of a POST."""

from tests.bench.accept import Load, Measured, Turns, build_figures

TURNS = Turns([0.03, 0.02, 0.01], [0.01, 0.01, 0.01])


def measured(alone: Turns = TURNS, crowded: Turns = TURNS, at_work: Turns = TURNS) -> Measured:
    load = Load(8, [0.02] * 100, 0.5)
    return Measured((load,), alone=alone, one=TURNS, page=TURNS, crowded=crowded, at_work=at_work)


def verdict_of(what: str, of: Measured) -> bool | None:
    [figure] = [figure for figure in build_figures(of) if what in figure.what]
    return figure.is_ok


def test_the_goal_is_for_the_platform_at_work_and_not_for_the_api_alone() -> None:
    slow = Turns([0.031], [0.01])
    assert verdict_of("three bare writes", measured()) is True
    assert verdict_of("three bare writes", measured(at_work=slow)) is False
    assert verdict_of("reconciler sleeps", measured(alone=slow)) is None


def test_a_crowd_may_cost_a_third_at_most() -> None:
    assert verdict_of("ratio without", measured(crowded=Turns([0.026], [0.01]))) is True
    assert verdict_of("ratio without", measured(crowded=Turns([0.027], [0.01]))) is False


def test_a_machine_that_is_slower_by_then_is_no_crowd() -> None:
    assert verdict_of("ratio without", measured(crowded=Turns([0.06], [0.03]))) is True


def test_a_load_is_told_by_its_median_its_worst_and_its_rate() -> None:
    figures = [figure for figure in build_figures(measured()) if "8 clients" in figure.what]
    assert [(figure.value, figure.unit) for figure in figures] == [(0.02, "s"), (0.02, "s"), (200, "/s")]
