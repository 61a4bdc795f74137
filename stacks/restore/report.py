"""How a restore is told: a bar on a terminal, lines elsewhere, and a table at the end."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from gpu_platform.domain.stacks import StackAddress
from stacks.restore.plan import RUNS, Action, Outcome, Result, Step, count_results

COLOURS = {
    Result.RESTORED: "green",
    Result.THERE: "green",
    Result.LEFT: "yellow",
    Result.EMPTY: "dim",
    Result.FAILED: "red",
    Result.INTERRUPTED: "yellow",
}
WITHOUT_STOCK = "there was no free stock: it runs once its GPUs are free"
UNCUT = 1_000
"""Columns; wider than any row, because a program that reads the table wants whole words."""

Planned = Sequence[tuple[StackAddress, Step]]


class Telling:
    """Shows nothing; `Lines` and `Bar` do."""

    def begin(self, what: str, total: int) -> None:
        """A part of the work that has so many steps."""

    def advance(self, done: int) -> None:
        """So many of them are done."""

    def say(self, line: str) -> None:
        """One line beside the progress."""


class Lines(Telling):
    """For a log: one line per part at its beginning, and one for each tenth of it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._what, self._total, self._told = "", 0, 0

    def begin(self, what: str, total: int) -> None:
        self._what, self._total, self._told = what, total, 0
        self.say(f"{what}: 0 of {total}")

    def advance(self, done: int) -> None:
        is_worth_it = done >= self._total or done - self._told >= max(1, self._total // 10)
        if done > self._told and is_worth_it:
            self._told = done
            self.say(f"{self._what}: {done} of {self._total}")

    def say(self, line: str) -> None:
        self._console.print(Text(line))


class Bar(Telling):
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None, visible=False)

    def begin(self, what: str, total: int) -> None:
        self._progress.reset(self._task, description=what, total=total, visible=True)

    def advance(self, done: int) -> None:
        self._progress.update(self._task, completed=done)

    def say(self, line: str) -> None:
        self._progress.console.print(Text(line))


@contextmanager
def telling(*, is_quiet: bool) -> Iterator[Telling]:
    console = Console(stderr=True, soft_wrap=True)
    if is_quiet:
        yield Telling()
    elif not console.is_terminal:
        yield Lines(console)
    else:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            yield Bar(progress)


def print_outcomes(outcomes: Sequence[Outcome], seconds: float, *, as_json: bool) -> None:
    counted = count_results(outcomes)
    if as_json:
        counts = {result.value: count for result, count in counted.items()}
        told = {"stacks": [outcome.to_json() for outcome in outcomes], "counts": counts, "seconds": round(seconds, 1)}
        _console().print_json(json.dumps(told))
        return
    remarkable = [outcome for outcome in outcomes if outcome.reason or outcome.is_without_stock]
    if remarkable:
        table = Table("stack", "result", "why", box=None, header_style="bold")
        for outcome in remarkable:
            why = outcome.reason or WITHOUT_STOCK
            table.add_row(outcome.address.full_name, Text(outcome.result.value, COLOURS[outcome.result]), Text(why))
        _console().print(table)
    said = ", ".join(f"{count} {result.value}" for result, count in counted.items()) or "there are no stacks"
    _console().print(Text(f"restore: {said}, in {seconds:.0f} s"))


def print_plan(planned: Planned, *, as_json: bool) -> None:
    if as_json:
        rows = [
            {"stack": address.full_name, "action": step.action.name.lower(), "reason": step.reason or None}
            for address, step in planned
        ]
        _console().print_json(json.dumps({"plan": rows}))
        return
    table = Table("stack", "would be done", "why", box=None, header_style="bold")
    for address, step in planned:
        if step.action is not Action.NOTHING:
            table.add_row(address.full_name, step.action.value, Text(step.reason))
    if table.row_count:
        _console().print(table)
    counted = {
        "to restore": sum(step.action in RUNS for _, step in planned),
        "already there": sum(step.action is Action.NOTHING for _, step in planned),
        "not": sum(step.action not in (*RUNS, Action.NOTHING) for _, step in planned),
    }
    said = ", ".join(f"{count} {what}" for what, count in counted.items() if count) or "there are no stacks"
    _console().print(Text(f"dry run: {said}; nothing was written"))


def _console() -> Console:
    console = Console(soft_wrap=True)
    return console if console.is_terminal else Console(soft_wrap=True, width=UNCUT)
