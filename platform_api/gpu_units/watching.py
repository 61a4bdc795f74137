"""The tenant's units as they change, as server-sent events.

An event's id is a resourceVersion: a caller that was cut off sends the last one it saw (`Last-Event-ID`) and misses
nothing. When that is too old, it is told to `resync`, and gets the full list again.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

from gpu_platform.adapters.kube.watch import parse_event
from gpu_platform.kube import GoneError, KubeError
from gpu_platform.kube.paths import GPU_UNITS
from gpu_platform.kube.requests import list_pages
from platform_api.bounded_client import BoundedClient
from platform_api.gpu_units.schemas import UnitView

Json = dict[str, Any]

ROUND_SECONDS = 15
"""How long one watch lasts. Between two of them a comment keeps proxies from closing a silent stream."""

RETRY_SECONDS = 1.0
PAGE = 500
REFUSALS = (400, 401, 403, 404)
TOO_NEW = 504
"""Status for a resourceVersion that the API server has not reached yet, as after a restored backup."""

NAMES = {"ADDED": "added", "MODIFIED": "modified", "DELETED": "deleted"}


async def watch_units(
    client: BoundedClient, namespace: str, last_seen: str | None, show: Callable[[Json], UnitView]
) -> AsyncGenerator[bytes, None]:
    version = last_seen
    while True:
        try:
            if version is None:
                version, events = await _list(client, namespace, show)
                for event in events:
                    yield event
            async for seen, event in _round(client, namespace, version, show):
                version = seen
                yield event
            yield b": still there\n\n"
        except GoneError:
            version = None
            yield _event("resync", "", {})
        except KubeError as error:
            if version is None or error.status in REFUSALS:
                raise
            if error.status == TOO_NEW:
                version = None
                yield _event("resync", "", {})
                continue
            yield b": Kubernetes is away\n\n"
            await asyncio.sleep(RETRY_SECONDS)


async def _list(client: BoundedClient, namespace: str, show: Callable[[Json], UnitView]) -> tuple[str, list[bytes]]:
    items: list[Json] = []
    async for page in list_pages(client, GPU_UNITS.collection(namespace), {}, PAGE):
        items += page["items"]
    version = page["metadata"]["resourceVersion"]
    # The id comes last: a caller that is cut off in the middle of the list has to get all of it again.
    end = f"id: {version}\n\n".encode()
    return version, [*(_event("added", "", show(item).to_json()) for item in items), end]


async def _round(
    client: BoundedClient, namespace: str, version: str, show: Callable[[Json], UnitView]
) -> AsyncGenerator[tuple[str, bytes], None]:
    params = {
        "watch": "true",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(ROUND_SECONDS),
    }
    async for line in client.lines(GPU_UNITS.collection(namespace), params, silence=2 * ROUND_SECONDS):
        event = parse_event(line)
        item = event["object"]
        match event["type"]:
            case "BOOKMARK":
                version = item["metadata"]["resourceVersion"]
                yield version, f"id: {version}\n\n".encode()
            case kind:
                version = item["metadata"]["resourceVersion"]
                yield version, _event(NAMES[kind], version, show(item).to_json())


def _event(name: str, version: str, data: Json) -> bytes:
    lines = [f"id: {version}"] if version else []
    lines += [f"event: {name}", f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}"]
    return ("\n".join(lines) + "\n\n").encode()
