"""How answers look to a person."""

import io
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from gpu_platform.cli.output import build_age, build_duration, build_table

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("span", "age"),
    [
        (timedelta(seconds=-3), "0s"),
        (timedelta(seconds=59.9), "59s"),
        (timedelta(seconds=60), "1m0s"),
        (timedelta(minutes=5, seconds=12), "5m12s"),
        (timedelta(hours=3, minutes=7, seconds=9), "3h7m"),
        (timedelta(days=2, hours=4), "2d4h"),
    ],
)
def test_an_age_has_the_two_units_that_matter(span: timedelta, age: str) -> None:
    assert build_duration(span.total_seconds()) == age


@pytest.mark.parametrize(
    ("since", "age"),
    [
        ("2026-01-31T11:59:00Z", "1m0s"),
        ("2026-01-31T12:59:00+01:00", "1m0s"),
        ("2026-01-31T11:59:00.5", "59s"),
        (None, "–"),
    ],
)
def test_an_instant_is_read_with_its_zone(since: str | None, age: str) -> None:
    assert build_age(datetime.fromisoformat(since) if since else None, NOW) == age


@pytest.mark.parametrize(("phase", "code"), [("Ready", "32"), ("Progressing", "33"), ("Failed", "31")])
def test_phases_have_colours_where_a_person_looks(phase: str, code: str) -> None:
    written = io.StringIO()

    Console(file=written, force_terminal=True, color_system="standard").print(build_table(("PHASE",), [(phase,)]))

    assert f"\x1b[{code}m{phase}" in written.getvalue()
