"""The picture of a call's way."""

from datetime import UTC, datetime, timedelta
from typing import Any

from gpu_platform.api_models.invocations import InvocationView
from gpu_platform.cli.invocations import WIDTH, Moment, build_bars, list_moments
from tests.unit.client import views

ACCEPTED_AT = datetime(2026, 11, 17, 12, tzinfo=UTC)


def at(milliseconds: int) -> str:
    return (ACCEPTED_AT + timedelta(milliseconds=milliseconds)).isoformat()


def call(**changes: Any) -> InvocationView:
    return InvocationView.model_validate(views.call(acceptedAt=at(0), queuedAt=at(4), **changes))


def test_a_cold_call_shows_every_step_in_its_order() -> None:
    start = {"wokenAt": at(10), "claimedAt": at(30), "startedAt": at(400), "readyAt": at(900)}

    assert list_moments(call(coldStart=start, startedAt=at(910), finishedAt=at(950))) == (
        Moment("accepted", 0.0),
        Moment("queued", 0.004),
        Moment("woken", 0.01),
        Moment("stock claimed", 0.03),
        Moment("worker started", 0.4),
        Moment("worker ready", 0.9),
        Moment("begun", 0.91),
        Moment("answered", 0.95),
    )


def test_what_was_before_the_call_is_not_its_own() -> None:
    start = {"wokenAt": at(-500), "claimedAt": at(-480), "startedAt": at(-10), "readyAt": at(300)}

    shown = [moment.name for moment in list_moments(call(coldStart=start, startedAt=at(310)))]

    assert shown == ["accepted", "queued", "worker ready", "begun"]


def test_a_warm_call_has_only_its_own_steps() -> None:
    shown = [moment.name for moment in list_moments(call(startedAt=at(5), finishedAt=at(8)))]

    assert shown == ["accepted", "queued", "begun", "answered"]


def test_bars_follow_one_another_on_one_scale() -> None:
    assert build_bars([0.0, 0.5, 1.0]) == ["", "━" * (WIDTH // 2), " " * (WIDTH // 2) + "━" * (WIDTH // 2)]


def test_a_step_that_took_no_time_to_speak_of_is_still_seen_and_within_the_picture() -> None:
    bars = build_bars([0.0, 0.001, 10.0, 10.001])

    assert all("━" in bar for bar in bars[1:])
    assert max(map(len, bars)) <= WIDTH


def test_nothing_took_any_time() -> None:
    assert build_bars([0.0, 0.0]) == ["", ""]
