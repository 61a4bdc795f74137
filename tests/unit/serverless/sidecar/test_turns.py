"""Which calls a worker runs at the same time."""

import pytest

from serverless.sidecar.turns import Turns


def test_calls_run_beside_each_other_and_remember_it() -> None:
    turns = Turns()
    assert turns.join("first")
    assert not turns.had_company("first")
    assert turns.join("second")
    turns.leave("second")

    assert turns.had_company("first")
    turns.leave("first")
    assert turns.join("first")
    assert not turns.had_company("first")


def test_one_that_is_to_run_alone_waits_for_the_others_and_keeps_new_ones_away() -> None:
    turns = Turns()
    assert turns.join("running")
    assert turns.reserve("suspect")
    assert not turns.is_open.is_set()
    assert not turns.is_idle.is_set()
    with pytest.raises(RuntimeError, match="would not run alone"):
        turns.enter_alone("suspect")

    # One that the worker had taken before it knew.
    assert turns.join("in hand")
    turns.leave("running")
    turns.leave("in hand")
    assert turns.is_idle.is_set()
    turns.enter_alone("suspect")
    assert not turns.join("other")
    assert not turns.had_company("suspect")

    turns.leave("suspect")
    assert turns.is_open.is_set()
    assert turns.join("other")


def test_one_suspect_at_a_time() -> None:
    turns = Turns()
    assert turns.reserve("first")
    assert not turns.reserve("second")
    turns.leave("second")
    assert not turns.is_open.is_set()
    turns.leave("first")
    assert turns.reserve("second")
