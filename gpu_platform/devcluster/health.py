"""Restarting a server whose store takes no more writes, once a restart mends it.

nats-server keeps the write error of a stream until it ends: after a full disk it refuses every write, also when the
disk has room again. Its health says so, and nothing else does.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import aiohttp

QUESTION_SECONDS = 2.0

ROOM_BYTES = 64 << 20
"""Free bytes with which a restart is worth it. Chosen by feel: some message blocks of each stream."""

BROKEN = ("write error", "JetStream not enabled")
"""What the health of nats-server says of a state that only a restart ends."""


@dataclass(frozen=True)
class Store:
    health_url: str
    directory: Path


def plan_restart(health: str | None, free_bytes: int) -> str | None:
    """Why the server is to be restarted now; None when it is not.

    | its health                             | room on its disk | restart |
    | -------------------------------------- | ---------------- | ------- |
    | good, or no answer                     | any              | no      |
    | a problem that may pass (it recovers)  | any              | no      |
    | a write error, or JetStream is off     | none             | no: it would come back to the same |
    | a write error, or JetStream is off     | some             | yes     |
    """
    if health is None or free_bytes < ROOM_BYTES or not any(words in health for words in BROKEN):
        return None
    return health


async def observe_restart(store: Store) -> str | None:
    """`plan_restart` for this store, as it is now."""
    return plan_restart(await _read_health(store.health_url), _count_free_bytes(store.directory))


def _count_free_bytes(directory: Path) -> int:
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return 0


async def _read_health(url: str) -> str | None:
    """What the server says is wrong; None when nothing is, or it does not answer."""
    timeout = aiohttp.ClientTimeout(total=QUESTION_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
            error: str | None = json.loads(await response.text()).get("error")
            return error
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return None
