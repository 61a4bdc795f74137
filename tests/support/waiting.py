"""Waiting for a condition, with a patience that grows with the machine's load."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = float(os.environ.get("GPU_PLATFORM_TEST_PATIENCE_SECONDS", "180"))
"""How long a test waits for a condition on idle cores before it fails."""


class NotYet:
    """A false answer that says what was seen instead; `eventually` shows it when it gives up."""

    def __init__(self, seen: object) -> None:
        self._seen = seen

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return repr(self._seen)


def load_factor() -> float:
    """How many runnable processes share a core, at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class Deadline:
    """A limit in seconds of idle cores: on a busy machine it is later, by the load at the time of asking."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._started_at = time.monotonic()

    @property
    def is_over(self) -> bool:
        elapsed = time.monotonic() - self._started_at
        return elapsed > self._seconds and elapsed > self._seconds * load_factor()

    def check(self, question: Callable[[], object], answer: object) -> None:
        if self.is_over:
            name = getattr(question, "__qualname__", repr(question))
            elapsed = time.monotonic() - self._started_at
            raise AssertionError(f"{name}: not within {elapsed:.0f} s; the last answer was {answer!r}")


def wait_until(question: Callable[[], T | NotYet | None], every: float = 0.01) -> T:
    """`eventually` for tests without an event loop."""
    deadline = Deadline(PATIENCE_SECONDS)
    while True:
        answer = question()
        if answer and not isinstance(answer, NotYet):
            return answer
        deadline.check(question, answer)
        time.sleep(every)


async def eventually(
    question: Callable[[], Awaitable[T | NotYet | None]], within: float = PATIENCE_SECONDS, every: float = 0.05
) -> T:
    """Asks until the answer is true, and returns it. Fails with the last answer when the patience ends."""
    deadline = Deadline(within)
    while True:
        answer = await question()
        if answer and not isinstance(answer, NotYet):
            return answer
        deadline.check(question, answer)
        await asyncio.sleep(every)
