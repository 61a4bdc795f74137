"""The tenant's calls as they change, as server-sent events.

An event's id is a sequence of the records' stream: a caller that was cut off sends the last one it saw
(`Last-Event-ID`) and misses no call. Of several changes of one call between two looks, the last one is told.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

from gpu_platform.adapters.queue.hints import Hints
from gpu_platform.nats.errors import QueueUnavailableError
from platform_api.invocations.schemas import view_of
from platform_api.invocations.store import Store

Json = dict[str, Any]

SILENCE_SECONDS = 15.0
"""After that a comment keeps proxies from closing a silent stream."""

RETRY_SECONDS = 1.0
TOGETHER_SECONDS = 0.05
"""Changes that come together are read together."""


async def watch_calls(
    open_store: Callable[[], Store], hints: Hints, tenant: str, function: str | None, last_seen: str | None
) -> AsyncGenerator[bytes, None]:
    end = await open_store().listing.find_end()
    sequence = int(last_seen) + 1 if last_seen is not None else end
    if sequence > end:
        # The records are not those that the caller saw, as after a restored backup.
        sequence = 1
        yield _event("resync", None, {})
    yield f"id: {sequence - 1}\n\n".encode()
    spoke_at = time.monotonic()
    with hints.waiting(tenant) as waiter:
        while True:
            try:
                page = await open_store().listing.read_page(tenant, sequence, function=function)
            except QueueUnavailableError:
                yield b": NATS is away\n\n"
                await asyncio.sleep(RETRY_SECONDS)
                continue
            sequence = page.next_sequence
            for seen in page.seen:
                yield _event("changed", seen.revision, view_of(seen.call).to_json())
            if page.seen:
                spoke_at = time.monotonic()
            elif time.monotonic() - spoke_at > SILENCE_SECONDS:
                yield b": still there\n\n"
                spoke_at = time.monotonic()
            if page.is_last:
                await waiter.wait()
                await asyncio.sleep(TOGETHER_SECONDS)


def _event(name: str, sequence: int | None, data: Json) -> bytes:
    lines = [f"id: {sequence}"] if sequence is not None else []
    lines += [f"event: {name}", f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}"]
    return ("\n".join(lines) + "\n\n").encode()
