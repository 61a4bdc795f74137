"""The processes of a test's cluster: freeze one, find one, wait for what one did."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp

from gpu_platform.devcluster import lifecycle
from tests.support.clusters import RunningCluster
from tests.support.figures import count_passes
from tests.support.waiting import NotYet, eventually


def pid_of(cluster: RunningCluster, name: str) -> int:
    [pid] = [each.pid for each in lifecycle.current_status(cluster.directory).processes if each.name == name]
    assert pid is not None
    return pid


@contextmanager
def frozen(cluster: RunningCluster, name: str) -> Iterator[None]:
    """The process does nothing while the block runs."""
    pid = pid_of(cluster, name)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def wait_passes(cluster: RunningCluster, controller: str, passes: int) -> None:
    """Until the controller has made so many more passes: it had its chance to act."""
    before = await count_passes(cluster, controller)

    async def has_passed() -> bool | NotYet:
        made = await count_passes(cluster, controller) - before
        return made >= passes or NotYet(f"{made} passes of {controller}")

    await eventually(has_passed)


async def restart_reconciler(cluster: RunningCluster, *, passes: int) -> None:
    """Until the next process, which remembers nothing of the first one, has made so many passes over units."""
    first = pid_of(cluster, "reconciler")
    os.kill(first, signal.SIGTERM)

    async def has_passed() -> bool | NotYet:
        if Path(f"/proc/{first}").exists():
            return NotYet("on its way out it still answers for itself")
        try:
            made = await count_passes(cluster, "units")
        except aiohttp.ClientError as error:
            return NotYet(error)
        return made >= passes or NotYet(f"{made} passes")

    await eventually(has_passed)
