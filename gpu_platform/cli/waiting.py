"""`--wait`: looks again and again, and shows what it sees."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from gpu_platform.cli.errors import PlatformError, WaitError
from gpu_platform.cli.tables import build_duration, print_remark
from gpu_platform.cli.wait import Outcome, Verdict

# Seconds between two looks: a unit from warm stock is there in a moment, and a slow one is not asked for often.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 1.0
# Seconds. Another process of the API may not have heard yet of what was just made.
UNHEARD_OF = 5.0

Seen = TypeVar("Seen")
Show = Callable[[str, float], None]


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
