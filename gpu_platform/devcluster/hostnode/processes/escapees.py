"""Processes that left their group or lost their parent, found by the variables they were started with.

Called when a container has ended, and when the agent starts and stops.
"""

import os
import signal
from contextlib import suppress

from gpu_platform.devcluster.child_process import find_marked

SWEEPS = 10
"""A process may fork while it is looked for. The event loop waits meanwhile, so there has to be an end."""


def kill_escapees(mark: str, value: str) -> int:
    """Kill until none is found; the number of processes that it took."""
    killed: set[int] = set()
    for _ in range(SWEEPS):
        found = set(find_marked(mark, value))
        if not found:
            break
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= found
    return len(killed)
