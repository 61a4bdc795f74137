"""The cluster's own processes, for tests that put one of them to sleep or kill it."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from gpu_platform.devcluster import lifecycle
from tests.support.clusters import RunningCluster


def pid_of(cluster: RunningCluster, name: str) -> int:
    [pid] = [each.pid for each in lifecycle.current_status(cluster.directory).processes if each.name == name]
    assert pid is not None
    return pid


@contextmanager
def frozen(cluster: RunningCluster, name: str) -> Iterator[None]:
    """It does nothing while the block runs."""
    pid = pid_of(cluster, name)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
