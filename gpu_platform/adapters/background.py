"""Work that goes on beside a process's main work."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def running(forever: Iterable[Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run these while the block runs; when one of them fails, the block is cancelled and its error raised."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in forever]
        yield
        for task in tasks:
            task.cancel()
