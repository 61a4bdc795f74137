"""Asking the parts whether they are ready, and restarting a server whose store takes no more writes, once a restart
mends it: nats-server keeps the write error of a stream until it ends, so that after a full disk it refuses every
write, also when the disk has room again. Its health says so, and nothing else does."""

import json
import shutil
import ssl
from datetime import datetime
from pathlib import Path

import aiohttp

from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.processes import Finished, HttpReady, NodeReady, Store
from gpu_platform.domain.conditions import is_true
from gpu_platform.kube import KubeError, open_client
from gpu_platform.kube.paths import LEASES, NODES

QUESTION_SECONDS = 2.0

ROOM_BYTES = 64 << 20
"""Free bytes with which a restart is worth it. Chosen by feel: some message blocks of each stream."""

BROKEN = ("write error", "JetStream not enabled")
"""What the health of nats-server says of a state that only a restart ends."""


async def is_ready(
    directory: ClusterDirectory, question: HttpReady | NodeReady | Finished, tls: ssl.SSLContext, since: datetime
) -> bool:
    """Whether the process that was started at `since` answers; what an earlier one left behind does not count."""
    match question:
        case HttpReady(url):
            return await _answers(url, tls)
        case NodeReady(name):
            return await _node_is_ready(directory, name, since)
        case Finished():
            # Only its end says so.
            return False


async def _answers(url: str, tls: ssl.SSLContext) -> bool:
    timeout = aiohttp.ClientTimeout(total=QUESTION_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, ssl=tls) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


async def _node_is_ready(directory: ClusterDirectory, name: str, since: datetime) -> bool:
    try:
        async with await open_client(directory.kubeconfig) as kube:
            node = await kube.get(NODES.item(name), timeout=QUESTION_SECONDS)
            lease = await kube.get(LEASES.item(name, "kube-node-lease"), timeout=QUESTION_SECONDS)
    except KubeError:
        return False
    renewed_at = datetime.fromisoformat(lease["spec"]["renewTime"])
    return is_true(node, "Ready") and renewed_at >= since


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
