"""The decision about workers: each row of the table, and ten thousand minutes of simulated traffic."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from reconciler.functions.scaling_plan import (
    LONGEST_COOL_DOWN,
    QUEUE_DELAY,
    Decision,
    Demand,
    Limits,
    Peak,
    Workers,
    cool_until,
    enough_for,
    plan_scale,
)

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
IDLE = timedelta(seconds=60)
LIMITS = Limits(min_workers=0, max_workers=4, concurrency=1, idle_timeout=IDLE)
LONG_AGO = NOW - timedelta(hours=1)


def decide(
    demand: Demand,
    workers: Workers,
    *peaks: Peak,
    limits: Limits = LIMITS,
    since: datetime = LONG_AGO,
) -> Decision:
    return plan_scale(demand, workers, peaks, limits, NOW, since=since)


@pytest.mark.parametrize(
    ("calls", "concurrency", "fewest", "enough"),
    [(0, 1, 0, 0), (1, 1, 0, 1), (3, 1, 0, 3), (100, 1, 0, 4), (8, 10, 0, 2), (0, 1, 2, 2)],
)
def test_every_planned_slot_takes_one_call(calls: int, concurrency: int, fewest: int, enough: int) -> None:
    limits = replace(LIMITS, concurrency=concurrency, min_workers=fewest)

    assert enough_for(Demand(calls, 0), limits) == enough
    assert enough_for(Demand(0, calls), limits) == enough


def test_the_first_call_brings_a_worker_at_once() -> None:
    assert decide(Demand(1, 0), Workers(0), since=NOW).wanted == 1


def test_workers_that_start_already_are_counted() -> None:
    assert decide(Demand(2, 0), Workers(0, starting=2), since=NOW).wanted == 2


def test_a_call_that_waits_while_all_workers_are_ready_brings_one_more() -> None:
    late = Demand(1, 1, NOW - QUEUE_DELAY - timedelta(seconds=1))

    assert decide(late, Workers(2)).wanted == 3
    assert decide(late, Workers(1, starting=1)).wanted == 2, "the one that starts may take it"
    assert decide(late, Workers(4)).wanted == 4
    assert decide(replace(late, waiting_since=NOW), Workers(2)).wanted == 2


def test_nothing_is_taken_away_within_the_idle_time() -> None:
    recent = Peak(NOW - IDLE + timedelta(seconds=1), 3)
    past = Peak(NOW - IDLE, 3)

    assert decide(Demand(0, 0), Workers(3), recent).wanted == 3
    assert decide(Demand(0, 0), Workers(3), past).wanted == 1
    assert decide(Demand(0, 0), Workers(1), past).wanted == 0


def test_who_has_just_begun_to_look_takes_nothing_away() -> None:
    assert decide(Demand(0, 0), Workers(3), since=NOW - IDLE / 2).wanted == 3


def test_at_most_half_go_at_once() -> None:
    assert decide(Demand(0, 0), Workers(4)).wanted == 2
    assert decide(Demand(1, 0), Workers(4)).wanted == 2


def test_the_fewest_stay_and_the_most_are_never_passed() -> None:
    limits = replace(LIMITS, min_workers=2)

    assert decide(Demand(0, 0), Workers(3), limits=limits).wanted == 2
    assert decide(Demand(0, 0), Workers(0), limits=limits).wanted == 2
    assert decide(Demand(1_000, 0), Workers(4), limits=limits).wanted == 4
    assert decide(Demand(0, 0), Workers(9), limits=limits).wanted == 4, "the limit was lowered"


def test_after_three_failed_starts_nothing_is_started_until_it_has_cooled_down() -> None:
    failing = Workers(ready=1, failures=3, failed_at=NOW - timedelta(seconds=9))

    assert decide(Demand(5, 0), failing).wanted == 1
    assert decide(Demand(5, 0), replace(failing, failed_at=NOW - timedelta(seconds=10))).wanted == 4
    assert decide(Demand(5, 0), replace(failing, failures=2)).wanted == 4


def test_the_cool_down_doubles_up_to_a_limit() -> None:
    waits = [cool_until(Workers(0, failures=number, failed_at=NOW)) for number in (3, 4, 5, 100)]

    assert [until - NOW for until in waits if until] == [
        timedelta(seconds=10),
        timedelta(seconds=20),
        timedelta(seconds=40),
        LONGEST_COOL_DOWN,
    ]


def test_what_is_remembered_is_never_more_than_there_are_workers() -> None:
    peaks: tuple[Peak, ...] = ()
    chance = random.Random(7)
    for second in range(1_000):
        now = NOW + timedelta(seconds=second)
        peaks = plan_scale(Demand(chance.randrange(9), 0), Workers(4), peaks, LIMITS, now, since=LONG_AGO).peaks
        assert len(peaks) <= LIMITS.max_workers + 1


# Ten thousand minutes

Arrivals = Callable[[random.Random], Iterator[int]]
"""Calls that come in each second."""


def steady(chance: random.Random) -> Iterator[int]:
    rate = chance.uniform(0.01, 0.5)
    while True:
        yield int(chance.random() < rate)


def bursts(chance: random.Random) -> Iterator[int]:
    while True:
        yield chance.randrange(1, 100)
        for _ in range(chance.randrange(1, 300)):
            yield 0


def waves(chance: random.Random) -> Iterator[int]:
    period = chance.randrange(60, 600)
    second = 0
    while True:
        yield chance.randrange(3) if second % period < period // 2 else 0
        second += 1


def office_hours(_: random.Random) -> Iterator[int]:
    """Calls per minute of an assistant that a few people use: nobody, the morning, lunch, a demonstration."""
    minutes = [0] * 20 + [1, 0, 2, 1, 3, 2, 4, 3, 2, 5, 3, 2, 1, 2] + [0] * 8 + [1, 2, 1, 30, 12, 3, 1] + [0] * 15
    while True:
        for calls in minutes:
            yield from (int(second * calls // 60 != (second - 1) * calls // 60) for second in range(60))


@pytest.mark.parametrize("arrivals", [steady, bursts, waves, office_hours])
@pytest.mark.parametrize("seed", range(10))
def test_simulated_functions_have_enough_workers_and_do_not_flap(arrivals: Arrivals, seed: int) -> None:
    """250 minutes of one function, by seconds: a worker takes three seconds to start, a call one to twenty to run."""
    chance = random.Random(seed)
    limits = Limits(chance.choice((0, 0, 1)), chance.choice((1, 4, 10)), chance.choice((1, 1, 4)), IDLE)
    coming, waiting = arrivals(chance), list[int]()
    running: list[int] = []
    starting: list[int] = []
    ready, peaks = 0, tuple[Peak, ...]()
    lowered_at: int | None = None
    raised_at = -1_000
    changes = 0
    for second in range(250 * 60):
        now = NOW + timedelta(seconds=second)
        waiting += [second] * next(coming)
        running = [left - 1 for left in running if left > 1]
        starting = [left - 1 for left in starting]
        ready += starting.count(0)
        starting = [left for left in starting if left > 0]
        while waiting and len(running) < ready * limits.concurrency:
            waiting.pop(0)
            running.append(chance.randrange(1, 20))
        since = NOW + timedelta(seconds=waiting[0]) if waiting else None
        demand, workers = Demand(len(waiting), len(running), since), Workers(ready, len(starting))
        decision = plan_scale(demand, workers, peaks, limits, now, since=NOW)
        peaks = decision.peaks

        assert limits.min_workers <= decision.wanted <= limits.max_workers
        assert decision.wanted >= enough_for(demand, limits)
        assert decision.wanted * limits.concurrency >= min(len(running), limits.max_workers * limits.concurrency)
        if decision.wanted > workers.there:
            changes += 1
            raised_at = second
            starting += [3] * (decision.wanted - workers.there)
        elif decision.wanted < workers.there:
            changes += 1
            if lowered_at is None or lowered_at < raised_at:
                assert second - raised_at >= IDLE.total_seconds(), "lowered as soon as it was raised"
            lowered_at = second
            ready -= workers.there - decision.wanted
    # A rise, then halving down to nothing, once per idle time at most.
    assert changes <= 250 * 60 / IDLE.total_seconds() * (limits.max_workers + 5)
