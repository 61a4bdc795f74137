"""List, then watch, for ever: the level-triggered source behind every loop.

A consumer sees each object as `ADDED`, `MODIFIED` or `DELETED`, and `SYNCED` after every full list, so that
it can drop what it still holds and the list no longer named.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gpu_platform.adapters.kube.client import KubeClient
from gpu_platform.adapters.kube.errors import GoneError, KubeError, error_from_status

WATCH_SECONDS = 300
"""How long the server keeps one watch open; also how often the world is listed again."""

SILENCE_SECONDS = WATCH_SECONDS + 30
"""A watch that sends nothing for this long, not even its end, is a dead connection."""

RETRY_SECONDS = (0.2, 5.0)
"""Between attempts, from and to: an API server that restarts is found again in well under a second."""


@dataclass(frozen=True)
class WatchEvent:
    type: Literal["ADDED", "MODIFIED", "DELETED", "SYNCED"]
    object: dict[str, Any]


async def list_and_watch(
    client: KubeClient, path: str, selectors: Mapping[str, str] | None = None
) -> AsyncIterator[WatchEvent]:
    """Yield the state of every object under `path` and then its changes; survives any API-server restart."""
    delay = RETRY_SECONDS[0]
    while True:
        try:
            answer = await client.get(path, selectors)
            for item in answer.get("items") or []:
                yield WatchEvent("ADDED", item)
            yield WatchEvent("SYNCED", {})
            delay = RETRY_SECONDS[0]
            async for event in _watch(client, path, answer["metadata"]["resourceVersion"], selectors or {}):
                yield event
        except GoneError:
            continue
        except KubeError:
            await asyncio.sleep(delay * (1 + random.random()))
            delay = min(delay * 2, RETRY_SECONDS[1])


async def _watch(
    client: KubeClient, path: str, version: str, selectors: Mapping[str, str]
) -> AsyncIterator[WatchEvent]:
    params = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS), **selectors}
    lines = client.lines(path, params, silence=SILENCE_SECONDS)
    async for line in lines:
        event = json.loads(line)
        if event["type"] == "ERROR":
            raise error_from_status(int(event["object"].get("code", 500)), event["object"])
        yield WatchEvent(event["type"], event["object"])
