"""What a figure says of itself: ratio, verdict, percentiles, and what is kept of it."""

import json
from pathlib import Path

import pytest

from tests.bench.figures import Figure, Goal, build_table, p50, p99, save_figures


@pytest.mark.parametrize(
    ("baseline", "goal", "is_ok"),
    [
        (2.0, Goal(1.5, of_ratio=True), True),
        (2.0, Goal(1.4, of_ratio=True), False),
        (2.0, Goal(3.0), True),
        (2.0, Goal(2.9), False),
        (None, Goal(3.0), True),
        (None, Goal(1.5, of_ratio=True), False),
        (2.0, Goal(1.5, of_ratio=True, at_least=True), True),
        (2.0, Goal(1.6, of_ratio=True, at_least=True), False),
        (None, Goal(0.1, of_ratio=True, at_least=True), False),
        (2.0, None, None),
    ],
)
def test_a_goal_is_of_the_ratio_or_of_the_value(baseline: float | None, goal: Goal | None, is_ok: bool | None) -> None:
    assert Figure("P0", "what", 3.0, "s", 10, baseline, goal).is_ok is is_ok


def test_nothing_at_all_meets_a_goal_of_zero() -> None:
    assert Figure("P0", "writes", 0, "", 10, goal=Goal(0)).is_ok is True
    assert Figure("P0", "writes", 1, "", 10, goal=Goal(0)).is_ok is False


def test_p99_of_a_hundred_is_the_second_largest() -> None:
    assert p99([float(number) for number in range(100)]) == 98
    assert p99([3.0]) == 3


def test_p50_is_the_middle() -> None:
    assert p50([5.0, 1.0, 2.0]) == 2


def test_what_is_saved_can_be_compared_by_a_machine(tmp_path: Path) -> None:
    figures = [Figure("P2", "start", 3.0, "s", 30, 2.0, Goal(2.0, of_ratio=True)), Figure("P4", "writes", 8, "", 50)]
    save_figures(tmp_path / "bench" / "results.json", figures)
    [start, writes] = json.loads((tmp_path / "bench" / "results.json").read_text())["figures"]
    assert start == {
        "id": "P2",
        "what": "start",
        "value": 3.0,
        "unit": "s",
        "baseline": 2.0,
        "ratio": 1.5,
        "goal": {"limit": 2.0, "of_ratio": True, "at_least": False},
        "ok": True,
        "samples": 30,
    }
    assert (writes["baseline"], writes["ratio"], writes["goal"], writes["ok"]) == (None, None, None, None)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.0123, "s", "12.3 ms"),
        (1.5, "s", "1500 ms"),
        (211.7, "/s", "212 /s"),
        (1.934, "/s", "1.93 /s"),
        (7.5612, "", "7.561"),
    ],
)
def test_a_value_is_shown_with_its_unit(value: float, unit: str, shown: str) -> None:
    [_, _, values, *_] = build_table([Figure("P0", "what", value, unit, 10)]).columns
    assert list(values.cells) == [shown]


def test_the_table_has_a_row_for_each_figure() -> None:
    assert build_table([Figure("P0", "what", 3.0, "s", 10), Figure("P0", "what", 3, "", 10)]).row_count == 2
