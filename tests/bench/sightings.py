"""The moment at which a watch shows something. Both sides of a ratio are timed by it: asking again and again would
add its own interval to each, and load the API server with questions."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, list_and_watch

Matches = Callable[[Json], bool]

PATIENCE_SECONDS = 60.0
"""Far above anything measured here: beyond it the run has failed, and is not slow."""


class Sightings:
    """What a watch has shown since somebody asked."""

    def __init__(self) -> None:
        self._awaited: list[tuple[Matches, asyncio.Future[float]]] = []

    def expect(self, matches: Matches) -> asyncio.Future[float]:
        """The moment (`time.perf_counter`) at which the first object that matches is seen. Ask before you act."""
        seen_at: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._awaited.append((matches, seen_at))
        return seen_at

    def see(self, item: Json) -> None:
        now = time.perf_counter()
        for matches, seen_at in self._awaited:
            if not seen_at.done() and matches(item):
                seen_at.set_result(now)
        self._awaited = [each for each in self._awaited if not each[1].done()]


@asynccontextmanager
async def watching(kube: KubeClient, path: str) -> AsyncIterator[Sightings]:
    sightings, listed = Sightings(), asyncio.Event()

    async def follow() -> None:
        async with aclosing(list_and_watch(kube, path)) as events:
            async for event in events:
                match event.type:
                    case "SYNCED":
                        listed.set()
                    case "ADDED" | "MODIFIED":
                        sightings.see(event.object)

    task = asyncio.create_task(follow())
    try:
        await asyncio.wait_for(listed.wait(), PATIENCE_SECONDS)
        yield sightings
    finally:
        task.cancel()
        await asyncio.wait({task})


async def seen(moment: asyncio.Future[float]) -> float:
    return await asyncio.wait_for(moment, PATIENCE_SECONDS)


def is_named(item: Json, name: str, namespace: str) -> bool:
    metadata = item["metadata"]
    return bool(metadata["name"] == name and metadata["namespace"] == namespace)
