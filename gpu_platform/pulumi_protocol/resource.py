"""Waiting for something to become true of an object, with a limit and a word about what it waits for."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from providers.protocol.failures import ResourceFailedError

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0

Report = Callable[[str], Awaitable[None]]


@dataclass(frozen=True)
class Patience:
    """How long to wait, who is told meanwhile, and what ends it early."""

    seconds: float
    report: Report
    cancelled: asyncio.Event


@dataclass(frozen=True)
class Verdict:
    ready: bool
    reason: str = ""
    hopeless: bool = False
    """Waiting longer would change nothing."""


READY = Verdict(ready=True)


async def wait_until(
    look: Callable[[], Awaitable[Verdict]], patience: Patience, what: str, failure: type[ResourceFailedError]
) -> None:
    """`what` is said of it while it is not so: `Namespace shop is not gone`."""
    clock = asyncio.get_running_loop().time
    deadline, pause, said = clock() + patience.seconds, FIRST_PAUSE, ""
    while not (verdict := await look()).ready:
        if verdict.hopeless:
            raise failure(f"{what}: {verdict.reason}")
        if patience.cancelled.is_set():
            raise failure(f"{what}, and the update was cancelled: {verdict.reason}")
        if clock() > deadline:
            raise failure(f"{what} after {patience.seconds:.0f} s: {verdict.reason}")
        if verdict.reason != said:
            said = verdict.reason
            await patience.report(f"waiting: {said}")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(patience.cancelled.wait(), pause)
        pause = min(pause * 1.5, LONGEST_PAUSE)
    if said:
        await patience.report("")
