"""Loopback ports for the servers of tests."""

import itertools
import os
import socket

from gpu_platform.devcluster.record import LOOPBACK, OURS

FIRST, PER_WORKER = 10_000, 600
"""Below the ports of clusters, and below the kernel's own range, from which a connection could take one meanwhile."""

WORKERS = (OURS.start - FIRST) // PER_WORKER

_number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
_ports = itertools.cycle(range(FIRST + _number * PER_WORKER, FIRST + (_number + 1) * PER_WORKER))


def free_port() -> int:
    """A port that no other worker is given, and this one not again for a long time."""
    for port in itertools.islice(_ports, PER_WORKER):
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    raise AssertionError(f"no port of {PER_WORKER} is free")
