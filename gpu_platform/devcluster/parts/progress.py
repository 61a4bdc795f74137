"""Shows what is being built: live on a terminal, a line now and then elsewhere, nothing when nothing is."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import Progress as RichProgress
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

# Often enough to show a log reader that it lives, rarely enough to keep a CI log short.
PLAIN_INTERVAL_SECONDS = 15.0


class Progress:
    """Says nothing, which others build on. Methods may be called from any thread."""

    def started(self, part: str) -> None: ...

    def doing(self, part: str, what: str) -> None: ...

    def finished(self, part: str, how: str) -> None: ...

    def beat(self) -> None:
        """Called about every second while something is built."""


class LiveProgress(Progress):
    """One line per part that stays in place: spinner, part, elapsed time, what is compiling."""

    def __init__(self, console: Console) -> None:
        self._rich = RichProgress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.fields[part]}", markup=False),
            TimeElapsedColumn(),
            TextColumn(
                "{task.description}",
                style="dim",
                markup=False,
                table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
            console=console,
            expand=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._changing = threading.Lock()

    def started(self, part: str) -> None:
        with self._changing:
            self._rich.start()
            self._tasks[part] = self._rich.add_task("starting", part=part, total=1)

    def doing(self, part: str, what: str) -> None:
        self._rich.update(self._tasks[part], description=what)

    def finished(self, part: str, how: str) -> None:
        self._rich.update(self._tasks[part], description=how, completed=1)

    def close(self) -> None:
        with self._changing:
            if self._tasks:
                self._rich.stop()


@dataclass
class _Running:
    started_at: float
    shown_at: float
    what: str


class PlainProgress(Progress):
    """Lines for logs: start, finish, and in between at most one per part and interval."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._running: dict[str, _Running] = {}
        self._changing = threading.Lock()

    def started(self, part: str) -> None:
        with self._changing:
            now = self._clock()
            self._running[part] = _Running(now, now, "starting")
            self._show(f"{part}: started")

    def doing(self, part: str, what: str) -> None:
        with self._changing:
            self._running[part].what = what

    def finished(self, part: str, how: str) -> None:
        with self._changing:
            running = self._running.pop(part)
            self._show(f"{part}: {how} after {self._clock() - running.started_at:.0f} s")

    def beat(self) -> None:
        with self._changing:
            now = self._clock()
            for part, running in self._running.items():
                if now - running.shown_at >= PLAIN_INTERVAL_SECONDS:
                    running.shown_at = now
                    self._show(f"{part}: {now - running.started_at:.0f} s, {running.what}")

    def _show(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def shown_progress(console: Console) -> Iterator[Progress]:
    """The progress that suits the console."""
    if not console.is_terminal:
        yield PlainProgress(console)
        return
    live = LiveProgress(console)
    try:
        yield live
    finally:
        live.close()


def describe_line(line: str) -> str | None:
    """What a line of `go build -v` or pip says about the work; None for lines that say nothing."""
    words = line.split()
    if line.startswith("go: downloading "):
        return " ".join(words[1:])
    if len(words) == 1 and "/" in line:
        return f"compiling {line}"
    if line.startswith(("waiting ", "Collecting ", "Downloading ", "Installing ")):
        return line[0].lower() + line[1:]
    return None
