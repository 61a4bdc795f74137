"""Waiting for the world to come round, with a deadline and a last look to report."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(question: Callable[[], Awaitable[T | None]], within: float = 180.0, every: float = 0.05) -> T:
    """Ask until the answer is true, and return it."""
    deadline = time.monotonic() + within
    while True:
        answer = await question()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s; the last answer was {answer!r}")
        await asyncio.sleep(every)
