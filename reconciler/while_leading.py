"""Work that is not about keys, beside the controllers: it goes on while this process leads."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class WhileLeading:
    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Until it ends, `stop`, or cancellation; again in every term."""
        working = asyncio.create_task(self._work())
        stopping = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            working.cancel()
            stopping.cancel()
            await asyncio.wait({working, stopping})
        if not working.cancelled():
            working.result()

    def stop(self) -> None:
        """For good."""
        self._stopped.set()
