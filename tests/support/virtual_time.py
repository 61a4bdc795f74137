"""Runs a coroutine at once, however long it sleeps: the event loop's clock jumps to the next thing that is due.

Real files and sockets have no place in it. A coroutine that waits for something that will never come fails.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_in_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=_VirtualTimeLoop) as runner:
        return runner.run(main)


def now() -> float:
    return asyncio.get_running_loop().time()


class _VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._selector_clock = _JumpingSelector()
        super().__init__(self._selector_clock)

    def time(self) -> float:
        return self._selector_clock.now


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if ready := super().select(0):
            return ready
        if timeout is None:
            raise AssertionError("everything waits, and nothing is due any more")
        self.now += timeout
        return []
