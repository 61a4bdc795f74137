"""`--wait`: polls an object until a pure `judge_` function says that it is done or failed, and shows its state. Used by
every command that changes something."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from gpu_platform.cli.errors import PlatformError, WaitError
from gpu_platform.cli.output import (
    build_duration,
    build_state,
    build_why,
    coloured_word,
    print_error,
    print_json,
    print_line,
    print_remark,
)
from gpu_platform.cli.views import (
    FunctionView,
    JobView,
    PoolView,
    PreviewView,
    StackView,
    StockUnitView,
    StorageView,
    UnitView,
)

UNPROBED_SECONDS = 2.0
"""How long a unit without probes stays Ready before `--wait` believes it: without a probe, a program that ends at once
is Ready for a moment. Chosen by feel; most programs that cannot start have ended by then."""

# Seconds between two looks: a unit from warm stock is there in a moment, and a slow one is not asked for often.
FIRST_PAUSE = 0.1

LONGEST_PAUSE = 1.0

# Seconds. Another process of the API may not have heard yet of what was just made.
UNHEARD_OF = 5.0

Seen = TypeVar("Seen")
Show = Callable[[str, float], None]
View = TypeVar("View", FunctionView, StorageView)
Deleted = TypeVar("Deleted", StorageView, UnitView)


class Outcome(Enum):
    NOT_YET = auto()
    DONE = auto()
    FAILED = auto()


@dataclass(frozen=True)
class Verdict:
    outcome: Outcome
    state: str
    """In words: shown while waiting, and told when it fails."""


def judge_settled(unit: UnitView | None, phase: str, generation: int) -> Verdict:
    """Whether the unit is in this phase, judged from the spec that was accepted or from a later one.

    | unit                                           | verdict |
    | ---------------------------------------------- | ------- |
    | gone                                           | failed  |
    | shown as it was before, or not looked at since | not yet |
    | in the phase                                   | done    |
    | Failed, on its way out                         | failed  |
    | anything else                                  | not yet |
    """
    if unit is None:
        return Verdict(Outcome.FAILED, "it is gone")
    state = build_state(unit["phase"], build_why(unit))
    if unit["phase"] == "Terminating":
        return Verdict(Outcome.FAILED, state)
    if unit["generation"] < generation or unit.get("observedGeneration") != unit["generation"]:
        return Verdict(Outcome.NOT_YET, state)
    if unit["phase"] == phase:
        return Verdict(Outcome.DONE, state)
    return Verdict(Outcome.FAILED if unit["phase"] == "Failed" else Outcome.NOT_YET, state)


def find_steady_seconds(unit: UnitView, phase: str) -> float:
    """How long the unit must stay in the phase before it counts as reached."""
    probes = (unit.get("template") or {}).get("probes") or {}
    is_probed = bool(probes.get("readiness") or probes.get("startup"))
    return UNPROBED_SECONDS if phase == "Ready" and not is_probed else 0.0


def judge_gone(seen: UnitView | StorageView | None) -> Verdict:
    if seen is None:
        return Verdict(Outcome.DONE, "gone")
    return Verdict(Outcome.NOT_YET, build_state(seen["phase"], build_why(seen)))


def judge_accepted(refusal: str | None) -> Verdict:
    """Of a request that is sent again and again; without a refusal it was accepted."""
    return Verdict(Outcome.NOT_YET, refusal) if refusal else Verdict(Outcome.DONE, "accepted")


def judge_job(job: JobView) -> Verdict:
    if job["status"] == "failed":
        return Verdict(Outcome.FAILED, f"failed: {job.get('error') or 'the platform does not say why'}")
    return Verdict(Outcome.DONE if job["status"] == "succeeded" else Outcome.NOT_YET, job["status"])


def judge_seeded(stock: list[StockUnitView] | None) -> Verdict:
    """Whether the stock that a job made can be claimed. None of it left: others were faster, and it was made."""
    waiting = [unit for unit in stock or () if unit["state"] == "waiting"]
    total = len(stock or ())
    state = f"{total - len(waiting)} of {total} ready"
    if not waiting:
        return Verdict(Outcome.DONE, state)
    why = build_why(waiting[0]) or waiting[0]["phase"]
    return Verdict(Outcome.NOT_YET, f"{state}; {waiting[0]['name']} waits ({why})")


def judge_recorded(stack: StackView | None) -> Verdict:
    """A try that failed is no end: it is tried again."""
    if stack is None:
        return Verdict(Outcome.FAILED, "it is gone")
    if stack["recorded"]:
        return Verdict(Outcome.DONE, "recorded")
    error = stack.get("error")
    return Verdict(Outcome.NOT_YET, f"failed {stack['failures']} times: {error}" if error else "not recorded yet")


def judge_preview(preview: PreviewView | None) -> Verdict:
    if preview is None:
        return Verdict(Outcome.FAILED, "the platform does not know it")
    state = build_state(preview["phase"], build_why(preview))
    outcomes = {"Succeeded": Outcome.DONE, "Failed": Outcome.FAILED}
    return Verdict(outcomes.get(preview["phase"], Outcome.NOT_YET), state)


def judge_ready(seen: PoolView | FunctionView | StorageView | None) -> Verdict:
    if seen is None:
        return Verdict(Outcome.FAILED, "it is gone")
    state = build_state(seen["phase"], build_why(seen))
    if seen["phase"] == "Terminating":
        return Verdict(Outcome.FAILED, state)
    if seen.get("observedGeneration") != seen["generation"]:
        return Verdict(Outcome.NOT_YET, state)
    outcomes = {"Ready": Outcome.DONE, "Failed": Outcome.FAILED}
    return Verdict(outcomes.get(seen["phase"], Outcome.NOT_YET), state)


def judge_recovered(seen: StorageView | None, failed_digest: str | None) -> Verdict:
    """As `judge_ready`, but the preparation that had failed before is no news."""
    if seen is not None and seen["phase"] == "Failed" and seen["prepareStatus"].get("observedDigest") == failed_digest:
        return Verdict(Outcome.NOT_YET, "not begun")
    return judge_ready(seen)


def build_goes_on(group: str, name: str) -> str:
    """What becomes of an object that is no longer waited for. `group` are its commands."""
    noun = group.removesuffix("s")
    command = f"gpu-platform {group}"
    return f"the {noun} {name} lives on: `{command} get {name}` shows it, `{command} delete {name}` deletes it"


class Deadline:
    """Several waits of one command share one time limit."""

    def __init__(self, timeout_seconds: float) -> None:
        self.timeout_seconds = timeout_seconds
        self._started_at = time.monotonic()
        self.reached_seconds: float | None = None
        """After which time the last wait saw what it waited for; the time in which it stayed so is not counted."""

    def elapsed_seconds(self) -> float:
        return time.monotonic() - self._started_at

    def left_seconds(self) -> float:
        return self.timeout_seconds - self.elapsed_seconds()


def wait_for(
    what: str,
    look: Callable[[], Seen | None],
    judge: Callable[[Seen | None], Verdict],
    deadline: Deadline,
    *,
    goal: str,
    goes_on: str,
    absence_is_news: bool = True,
    steady_seconds: float = 0.0,
) -> Seen | None:
    """What was last seen, once it is judged to be done, and nothing else for `steady_seconds`; WaitError when it failed
    or the time is over.

    An API that is away for a moment is waited for as well. With `absence_is_news`, what was never seen may only be
    unheard of; it counts as absent after a while. `goes_on` is told after Ctrl-C: it ends the wait, and nothing else.
    """
    began_at = deadline.elapsed_seconds()
    pause = FIRST_PAUSE
    was_seen = not absence_is_news
    done_since: float | None = None
    with _told_when_interrupted(goes_on), _shown(what) as show:
        while True:
            is_early = deadline.elapsed_seconds() - began_at < UNHEARD_OF
            verdict, seen = _look_once(look, judge, may_be_unheard_of=is_early and not was_seen)
            was_seen = was_seen or bool(seen)
            done_since = _find_done_since(verdict, done_since, deadline.elapsed_seconds())
            is_steady = done_since is not None and deadline.elapsed_seconds() - done_since >= steady_seconds
            if is_steady or (done_since is not None and deadline.left_seconds() <= 0):
                deadline.reached_seconds = done_since
                return seen
            if verdict.outcome is Outcome.FAILED:
                raise WaitError(f"{what} is not {goal}: {verdict.state}")
            if deadline.left_seconds() <= 0:
                raise WaitError(f"{what} is not {goal} after {deadline.timeout_seconds:g} s: {verdict.state}")
            show(verdict.state, deadline.elapsed_seconds())
            time.sleep(max(0.0, min(pause, deadline.left_seconds())))
            pause = min(pause * 1.5, LONGEST_PAUSE)


def _find_done_since(verdict: Verdict, before: float | None, elapsed_seconds: float) -> float | None:
    if verdict.outcome is not Outcome.DONE:
        return None
    return elapsed_seconds if before is None else before


def _look_once(
    look: Callable[[], Seen | None], judge: Callable[[Seen | None], Verdict], *, may_be_unheard_of: bool
) -> tuple[Verdict, Seen | None]:
    try:
        seen = look()
    except PlatformError as error:
        if not error.is_passing:
            raise
        return Verdict(Outcome.NOT_YET, f"no answer: {error}"), None
    if not seen and may_be_unheard_of:
        return Verdict(Outcome.NOT_YET, "accepted"), seen
    return judge(seen), seen


@contextmanager
def _told_when_interrupted(goes_on: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        print_remark(f"stopped waiting; {goes_on}")
        raise


@contextmanager
def _shown(what: str) -> Iterator[Show]:
    """A line that moves where a person looks; elsewhere a line per change."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _build_plain(what, console)
        return
    with console.status(escape(what), spinner="line" if console.options.ascii_only else "dots") as status:

        def show(state: str, elapsed_seconds: float) -> None:
            line = Text(f"{what}: {state}  {build_duration(elapsed_seconds)}", no_wrap=True, overflow="ellipsis")
            status.update(line)

        yield show


def _build_plain(what: str, console: Console) -> Show:
    said: list[str] = []

    def show(state: str, elapsed_seconds: float) -> None:
        if said[-1:] != [state]:
            said.append(state)
            console.print(Text(f"{what}: {state} after {build_duration(elapsed_seconds)}"), soft_wrap=True)

    return show


def finish_ready(
    group: str, view: View, find: Callable[[str], View | None], deadline: Deadline | None, *, as_json: bool
) -> None:
    """Without a deadline, nothing is waited for. `group` are the object's commands."""
    name = view["name"]
    if deadline:
        goes_on = build_goes_on(group, name)
        view = wait_for(name, lambda: find(name), judge_ready, deadline, goal="Ready", goes_on=goes_on) or view
    print_ready(view, deadline, as_json=as_json)


def print_ready(view: FunctionView | StorageView, deadline: Deadline | None, *, as_json: bool) -> None:
    """With a deadline: it was waited for, and is Ready."""
    if as_json:
        print_json(view)
    elif deadline:
        print_line(f"{view['name']} is ", coloured_word("Ready"), f" after {deadline.elapsed_seconds():.1f} s")
    else:
        print_line(f"{view['name']}: {build_state(view['phase'], build_why(view))}")


def delete_each(
    group: str,
    names: list[str],
    delete: Callable[[str], None],
    find: Callable[[str], Deleted | None],
    deadline: Deadline | None,
    *,
    as_json: bool,
) -> None:
    """One that cannot be deleted does not keep the others; the command fails all the same."""
    leaving: list[str] = []
    for name in names:
        try:
            delete(name)
        except PlatformError as error:
            print_error(error)
        else:
            leaving.append(name)
            if not as_json:
                print_line(f"{name} is being deleted")
    if deadline:
        for name in leaving:
            _wait_gone(group, name, find, deadline)
            if not as_json:
                print_line(f"{name} is gone")
    if leaving != names:
        raise typer.Exit(1)


def _wait_gone(group: str, name: str, find: Callable[[str], Deleted | None], deadline: Deadline) -> None:
    goes_on = f"the deletion of {name} goes on: `gpu-platform {group} get {name}` shows it"
    wait_for(name, lambda: find(name), judge_gone, deadline, goal="gone", goes_on=goes_on, absence_is_news=False)
