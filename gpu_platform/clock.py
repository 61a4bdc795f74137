"""Time: taking it, waiting for it, and how long to wait before a retry. Decisions get the time as an argument; this is
where processes take it from."""

import asyncio
import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

START_TICKS = 19
"""Place of the start among the fields of `/proc/self/stat` after the name of the program."""

# 2^20 times any first delay is beyond any longest one; without a limit the power overflows after a bad day.
LARGEST_EXPONENT = 20


def now_utc() -> datetime:
    return datetime.now(UTC)


def format_time(at: datetime) -> str:
    """The text of a `metav1.Time`: whole seconds."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(at: datetime) -> str:
    """The text of a `metav1.MicroTime`, as leases have it."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def wait_at_most(seconds: float, event: asyncio.Event) -> None:
    """Until it is set, or for so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def process_started_at() -> datetime:
    """When this process began: before it read the first of its modules."""
    after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    since_boot = int(after_name[START_TICKS]) / os.sysconf("SC_CLK_TCK")
    return now_utc() - timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot)


@dataclass(frozen=True)
class Backoff:
    """Delays in seconds from `first` to `longest`; `chance` gives numbers in [0, 1)."""

    first: float
    longest: float
    chance: Callable[[], float] = random.random

    def delay(self, failures: int) -> float:
        """After so many failures in a row (the first is 1): between half of the doubled delay and all of it."""
        doubled: float = min(self.first * 2 ** min(failures, LARGEST_EXPONENT), self.longest)
        return max(self.first, doubled * (0.5 + 0.5 * self.chance()))
