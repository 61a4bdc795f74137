"""The form of the Markdown: bounded, and nothing in a plan can leave its cell."""

import re

import pytest

from gpu_platform.cli.plans.digest import UNKNOWN
from gpu_platform.cli.plans.markdown import LONGEST, LONGEST_RULES, LONGEST_VALUE, build_value, code, render_markdown
from gpu_platform.cli.plans.rules import check_rules
from gpu_platform.domain.json_text import Json
from tests.unit.cli.plans.prepared_plans import build_plan_changes, build_step


def render(*steps: Json) -> str:
    changes = build_plan_changes(*steps)
    return render_markdown(changes, check_rules(changes.listed))


def rows_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| ")][1:]


def cells_of(row: str) -> list[str]:
    """As GitHub splits them: a pipe behind an odd number of backslashes belongs to the cell."""
    return re.split(r"(?<!\\)(?:\\\\)*\|", row)[1:-1]


def test_nothing_changes_is_a_sentence() -> None:
    assert "Nothing changes." in render()


@pytest.mark.parametrize(
    "value",
    ["a|b", "a\\|b", "a\\\\|b", "line\nbreak", "`code`", "``x`` | y", "|", "`", "<!-- @someone -->", "\u202eright"],
)
def test_a_value_stays_in_its_cell(value: str) -> None:
    (row,) = rows_of(render(build_step("update", "ConfigMap", value, old={"a": value}, new={"a": f"{value}2"})))

    assert len(cells_of(row)) == 4
    assert "\u202e" not in row


@pytest.mark.parametrize(
    ("text", "span"),
    [("plain", "`plain`"), ("a`b", "`` a`b ``"), ("``", "``` `` ```"), ("a|b", "`a\\|b`"), ("", "`   `")],
)
def test_a_code_span_has_a_fence_that_its_text_has_not(text: str, span: str) -> None:
    assert code(text) == span


def test_a_long_value_is_cut() -> None:
    shown = build_value("x" * 1_000)

    assert len(shown) == LONGEST_VALUE
    assert shown.endswith("…")


def test_a_value_that_only_the_update_brings_is_called_so() -> None:
    assert build_value(UNKNOWN) == "known later"


def test_a_text_and_a_number_look_different() -> None:
    assert (build_value("4"), build_value(4), build_value(None), build_value(True)) == ('"4"', "4", "null", "true")


def test_a_row_shows_a_bounded_number_of_properties() -> None:
    (row,) = rows_of(render(build_step("update", "ConfigMap", "x", old={"a": [0] * 500}, new={"a": [1] * 500})))

    assert "… and 460 more" in row


def test_a_large_plan_is_cut_between_rows_and_says_how_many_are_missing() -> None:
    bad = {"spec": {"containers": [{"name": "c", "image": "x" * 90}]}}
    steps = [build_step("create", "Pod", f"pod-{number}", new=bad) for number in range(2_000)]
    text = render(*steps, build_step("delete", "Namespace", "dear", old={"metadata": {"name": "dear"}}))

    rows = rows_of(text)
    assert LONGEST * 0.95 < len(text) <= LONGEST
    assert f"\n\n… and {2_001 - len(rows)} more changed resources\n" in text
    assert "`dear`" in rows[0]
    rules = text.partition("#### Broken rules: 6000\n\n")[2]
    assert 0 < len(rules) <= LONGEST_RULES
    assert f"\n\n… and {6_000 - rules.count('- **')} more broken rules\n" in text


def test_the_worst_row_fits_into_the_bound() -> None:
    old = {"|" * 300 + str(number): "`|" * 300 for number in range(100)}
    text = render(build_step("update", "ConfigMap", "|" * 1_000, old=old, new=dict.fromkeys(old, "|" * 999)))

    assert len(rows_of(text)) == 1
    assert len(text) <= LONGEST
