"""What is kept of each function between two looks at the queue."""

from datetime import datetime, timedelta

from gpu_platform.controller.loop import Key
from gpu_platform.domain.functions import GPUFunctionSpec
from gpu_platform.nats.streams import Backlog
from reconciler.functions.scaling import Scaler
from reconciler.functions.scaling_plan import QUEUE_DELAY, Workers
from tests.support.builders import NOW

KEY: Key = ("runtime-instance", "words")
QUIET = Backlog(0, 0, 0)
SPEC = GPUFunctionSpec(spec_name="g1.1", image="example/words", max_workers=4, idle_timeout_seconds=60)
IDLE = timedelta(seconds=60)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def make_scaler() -> tuple[Scaler, Clock, list[Key]]:
    clock, news = Clock(), list[Key]()
    scaler = Scaler(clock, news.append)
    return scaler, clock, news


def test_while_nobody_knows_the_queue_workers_stay_as_they_are() -> None:
    scaler, _, _ = make_scaler()

    assert scaler.plan(KEY, SPEC, Workers(3)).wanted == 3
    assert scaler.plan(KEY, SPEC, Workers(9)).wanted == 4
    assert scaler.plan(KEY, SPEC.model_copy(update={"min_workers": 2}), Workers(0)).wanted == 2


def test_workers_stay_for_the_idle_time_after_the_last_call_and_after_the_first_look() -> None:
    scaler, clock, _ = make_scaler()
    scaler.take(KEY, Backlog(2, 0, 0))
    assert scaler.plan(KEY, SPEC, Workers(0)).wanted == 2

    clock.now += timedelta(seconds=10)
    scaler.take(KEY, QUIET)
    assert scaler.plan(KEY, SPEC, Workers(2)).wanted == 2
    clock.now += IDLE
    scaler.take(KEY, QUIET)
    assert scaler.plan(KEY, SPEC, Workers(2)).wanted == 1
    assert scaler.plan(KEY, SPEC, Workers(1)).wanted == 0


def test_calls_that_nobody_takes_bring_one_more_worker() -> None:
    scaler, clock, _ = make_scaler()
    stuck = Backlog(waiting=1, running=0, given=7)
    scaler.take(KEY, stuck)
    clock.now += QUEUE_DELAY + timedelta(seconds=1)
    scaler.take(KEY, stuck)
    assert scaler.plan(KEY, SPEC, Workers(1)).wanted == 2

    scaler.take(KEY, Backlog(waiting=1, running=0, given=8))
    assert scaler.plan(KEY, SPEC, Workers(2)).wanted == 2, "kept for the idle time"


def test_only_what_may_change_is_looked_at_again() -> None:
    scaler, _, news = make_scaler()
    looks = {("default", "words"): QUIET}
    scaler.note(looks)
    assert news == [KEY]

    scaler.plan(KEY, SPEC, Workers(0))
    scaler.note(looks)
    assert news == [KEY], "it has its fewest workers, and nobody calls it"

    scaler.note({("default", "words"): Backlog(1, 0, 0)})
    scaler.plan(KEY, SPEC, Workers(0))
    scaler.note({("default", "words"): Backlog(1, 0, 0)})
    assert news == [KEY] * 3


def test_a_function_that_is_gone_is_forgotten() -> None:
    scaler, _, _ = make_scaler()
    scaler.take(KEY, Backlog(3, 0, 0))
    scaler.plan(KEY, SPEC, Workers(0))
    assert scaler.wanted(KEY) == 3

    scaler.forget(KEY)
    assert scaler.wanted(KEY) == 0
