"""The time. Decisions get it as an argument; this is where processes take it from."""

import asyncio
import os
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

START_TICKS = 19
"""Place of the start among the fields of `/proc/self/stat` after the name of the program."""


def now_utc() -> datetime:
    return datetime.now(UTC)


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
