"""Waiting for a state: pure `judge_` functions say whether it is reached, and `Wait` asks again until it is."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Generic, Protocol, TypeVar

from gpu_platform.api_models.functions import FunctionView
from gpu_platform.api_models.stacks import PreviewView, StackView
from gpu_platform.api_models.stock import JobView, PoolView, StockUnitView
from gpu_platform.api_models.storages import StorageView
from gpu_platform.api_models.units import UnitView
from gpu_platform.client.calls import Answer, Conduct, Operation, Pause, Steps
from gpu_platform.client.errors import PlatformError, WaitError

DEFAULT_TIMEOUT = 120.0
UNPROBED_SECONDS = 2.0
"""How long a unit without probes stays Ready before a wait believes it: without a probe, a program that ends at once
is Ready for a moment. Chosen by feel; most programs that cannot start have ended by then."""

FIRST_PAUSE = 0.1
"""Seconds between two looks: a unit from warm stock is there in a moment, and a slow one is not asked for often."""

LONGEST_PAUSE = 1.0

UNHEARD_OF = 5.0
"""Seconds. Another process of the API may not have heard yet of what was just made."""

T = TypeVar("T")

Settling = UnitView | PoolView | FunctionView | StorageView
"""What says by `observed_generation` from which spec its phase was judged."""


class Explained(Protocol):
    """An object with the reason of its state."""

    @property
    def reason(self) -> str | None: ...

    @property
    def message(self) -> str | None: ...


class Phased(Explained, Protocol):
    """An object with a phase."""

    @property
    def phase(self) -> str: ...


class Outcome(Enum):
    NOT_YET = auto()
    DONE = auto()
    FAILED = auto()


@dataclass(frozen=True)
class Verdict:
    outcome: Outcome
    state: str
    """In words: shown while waiting, and part of the error when it fails."""


def describe_reason(seen: Explained) -> str:
    """`reason: message`, as far as they are known."""
    return ": ".join(filter(None, (seen.reason, seen.message)))


def describe_state(seen: Phased) -> str:
    """`phase (reason: message)`."""
    why = describe_reason(seen)
    return f"{seen.phase} ({why})" if why else seen.phase


def judge_settled(seen: Settling | None, phase: str, generation: int) -> Verdict:
    """Whether the object is in this phase, judged from the spec that was accepted or from a later one.

    | object                                         | verdict |
    | ---------------------------------------------- | ------- |
    | gone                                           | failed  |
    | shown as it was before, or not looked at since | not yet |
    | in the phase                                   | done    |
    | Failed, being deleted                          | failed  |
    | anything else                                  | not yet |
    """
    if seen is None:
        return Verdict(Outcome.FAILED, "it is gone")
    state = describe_state(seen)
    if seen.phase == "Terminating":
        return Verdict(Outcome.FAILED, state)
    if seen.generation < generation or seen.observed_generation != seen.generation:
        return Verdict(Outcome.NOT_YET, state)
    if seen.phase == phase:
        return Verdict(Outcome.DONE, state)
    return Verdict(Outcome.FAILED if seen.phase == "Failed" else Outcome.NOT_YET, state)


def find_steady_seconds(unit: UnitView, phase: str) -> float:
    """How long the unit must stay in the phase before it counts as reached."""
    probes = unit.template.probes
    is_probed = probes is not None and bool(probes.readiness or probes.startup)
    return UNPROBED_SECONDS if phase == "Ready" and not is_probed else 0.0


def judge_gone(seen: Phased | None) -> Verdict:
    if seen is None:
        return Verdict(Outcome.DONE, "gone")
    return Verdict(Outcome.NOT_YET, describe_state(seen))


def judge_accepted(refusal: str) -> Verdict:
    """Of a request that is sent again and again; without a refusal it was accepted."""
    return Verdict(Outcome.NOT_YET, refusal) if refusal else Verdict(Outcome.DONE, "accepted")


def judge_job(job: JobView | None) -> Verdict:
    if job is None:
        return Verdict(Outcome.FAILED, "the platform does not know it")
    if job.status == "failed":
        return Verdict(Outcome.FAILED, f"failed: {job.error or 'the platform does not say why'}")
    return Verdict(Outcome.DONE if job.status == "succeeded" else Outcome.NOT_YET, job.status)


def judge_seeded(stock: tuple[StockUnitView, ...]) -> Verdict:
    """Whether the stock that a job made can be claimed. None of it left: others were faster, and it was made."""
    waiting = [unit for unit in stock if unit.state == "waiting"]
    state = f"{len(stock) - len(waiting)} of {len(stock)} ready"
    if not waiting:
        return Verdict(Outcome.DONE, state)
    why = describe_reason(waiting[0]) or waiting[0].phase
    return Verdict(Outcome.NOT_YET, f"{state}; {waiting[0].name} waits ({why})")


def judge_recorded(stack: StackView | None) -> Verdict:
    """A failed try does not end the wait: the worker tries again."""
    if stack is None:
        return Verdict(Outcome.FAILED, "it is gone")
    if stack.recorded:
        return Verdict(Outcome.DONE, "recorded")
    state = f"failed {stack.failures} times: {stack.error}" if stack.error else "not recorded yet"
    return Verdict(Outcome.NOT_YET, state)


def judge_preview(preview: PreviewView | None) -> Verdict:
    if preview is None:
        return Verdict(Outcome.FAILED, "the platform does not know it")
    outcomes = {"Succeeded": Outcome.DONE, "Failed": Outcome.FAILED}
    return Verdict(outcomes.get(preview.phase, Outcome.NOT_YET), describe_state(preview))


def judge_ready(seen: Settling | None) -> Verdict:
    return judge_settled(seen, "Ready", generation=0)


def judge_recovered(seen: StorageView | None, failed_digest: str | None) -> Verdict:
    """As `judge_ready`, except that the preparation that failed before does not count."""
    if seen is not None and seen.phase == "Failed" and seen.prepare_status.observed_digest == failed_digest:
        return Verdict(Outcome.NOT_YET, "not begun")
    return judge_ready(seen)


class Deadline:
    """The time limit that several waits may share."""

    @classmethod
    def of(cls, timeout: "float | Deadline") -> "Deadline":
        return timeout if isinstance(timeout, Deadline) else cls(timeout)

    def __init__(self, timeout_seconds: float) -> None:
        self.timeout_seconds = timeout_seconds
        self._started_at = time.monotonic()
        self.reached_seconds: float | None = None
        """After which time the last wait saw its goal; the time in which it stayed so is not counted."""

    def elapsed_seconds(self) -> float:
        return time.monotonic() - self._started_at

    def left_seconds(self) -> float:
        return self.timeout_seconds - self.elapsed_seconds()


def no_steady_seconds(_seen: Any) -> float:
    """The goal counts when it is seen once."""
    return 0.0


@dataclass(frozen=True)
class Wait(Operation[T], Generic[T]):
    """Looks until the goal is judged to be reached, and stays reached for `steady_seconds`; WaitError when it failed or
    the time is over.

    An API that is away for a moment is waited for as well. With `absence_is_news`, an object that was never seen may
    only be unheard of; it counts as absent after a while.
    """

    subject: str
    look: Operation[T]
    judge: Callable[[T], Verdict]
    deadline: Deadline
    goal: str
    absence_is_news: bool = True
    steady_seconds: Callable[[T], float] = no_steady_seconds

    @property
    def what(self) -> str:
        return self.subject

    def steps(self, conduct: Conduct) -> Steps[Answer[T]]:
        deadline = self.deadline
        began_at, pause = deadline.elapsed_seconds(), FIRST_PAUSE
        was_seen = not self.absence_is_news
        done_since: float | None = None
        while True:
            is_early = deadline.elapsed_seconds() - began_at < UNHEARD_OF
            verdict, seen = yield from self._look_once(conduct, may_be_unheard_of=is_early and not was_seen)
            was_seen = was_seen or bool(seen and seen.value)
            if seen and verdict.outcome is Outcome.DONE:
                now = deadline.elapsed_seconds()
                done_since = now if done_since is None else done_since
                if now - done_since >= self.steady_seconds(seen.value) or deadline.left_seconds() <= 0:
                    deadline.reached_seconds = done_since
                    return seen
            else:
                done_since = None
                self._check(verdict)
            conduct.show(verdict.state, deadline.elapsed_seconds())
            yield Pause(max(0.0, min(pause, deadline.left_seconds())))
            pause = min(pause * 1.5, LONGEST_PAUSE)

    def _check(self, verdict: Verdict) -> None:
        if verdict.outcome is Outcome.FAILED:
            raise WaitError(f"{self.subject} is not {self.goal}: {verdict.state}")
        if self.deadline.left_seconds() <= 0:
            raise WaitError(
                f"{self.subject} is not {self.goal} after {self.deadline.timeout_seconds:g} s: {verdict.state}"
            )

    def _look_once(self, conduct: Conduct, *, may_be_unheard_of: bool) -> Steps[tuple[Verdict, Answer[T] | None]]:
        try:
            seen = yield from self.look.steps(conduct)
        except PlatformError as error:
            if not error.is_passing:
                raise
            return Verdict(Outcome.NOT_YET, f"no answer: {error}"), None
        if not seen.value and may_be_unheard_of:
            return Verdict(Outcome.NOT_YET, "accepted"), seen
        return self.judge(seen.value), seen
