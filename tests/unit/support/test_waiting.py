"""Waiting for a condition: the patience, and what its end says."""

import os
import time

import pytest

from tests.support.virtual_time import run_in_virtual_time
from tests.support.waiting import Deadline, NotYet, eventually, load_factor


def test_the_first_true_answer_is_returned() -> None:
    answers = iter([None, False, NotYet("Pending"), "Ready"])

    async def ask() -> object:
        return next(answers)

    assert run_in_virtual_time(eventually(ask)) == "Ready"


async def test_the_end_of_the_patience_names_the_question_and_what_was_seen_last() -> None:
    async def is_ready() -> bool | NotYet:
        return NotYet({"phase": "Pending"})

    with pytest.raises(AssertionError, match=r"is_ready: not within 0 s; the last answer was \{'phase': 'Pending'\}"):
        await eventually(is_ready, within=0)


@pytest.mark.parametrize(("load", "factor"), [(0.0, 1.0), (2.0, 1.0), (8.0, 4.0)])
def test_the_patience_grows_with_the_load_of_a_core(
    monkeypatch: pytest.MonkeyPatch, load: float, factor: float
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)

    assert load_factor() == factor


@pytest.mark.parametrize(("elapsed", "load", "is_over"), [(9, 1, False), (11, 1, True), (11, 4, False), (21, 4, True)])
def test_a_deadline_is_later_on_a_busy_machine(
    monkeypatch: pytest.MonkeyPatch, elapsed: float, load: float, is_over: bool
) -> None:
    now = 1_000.0
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    deadline = Deadline(10)

    now += elapsed

    assert deadline.is_over is is_over
