"""Loopback ports: the recorded ones where they are still free, others where they are not."""

import random
import socket
from collections.abc import Mapping

from gpu_platform.devcluster.errors import DevClusterError

LOOPBACK = "127.0.0.1"

OURS = range(20_000, 32_000)
"""Below the kernel's own range: a port from there could become some connection's before its server binds it."""

PORT_NAMES = (
    "etcd",
    "etcd-peer",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "nats",
    "nats-monitor",
    "api",
    "reconciler",
    "reconciler-metrics",
    "stack-worker",
    "stack-worker-metrics",
)


def choose_ports(recorded: Mapping[str, int]) -> dict[str, int]:
    """A free port per name. A kept port keeps yesterday's kubeconfig and NATS URL valid."""
    chosen: dict[str, int] = {}
    held: list[socket.socket] = []
    try:
        for name in PORT_NAMES:
            # All sockets stay open until every name has one, so that no port is handed out twice.
            bound = (_bind(recorded[name]) if name in recorded else None) or _bind_any()
            held.append(bound)
            chosen[name] = bound.getsockname()[1]
    finally:
        for bound in held:
            bound.close()
    return chosen


def _bind_any() -> socket.socket:
    for port in random.sample(OURS, k=len(OURS)):
        if bound := _bind(port):
            return bound
    raise DevClusterError(f"no port of {OURS.start} to {OURS.stop - 1} is free on {LOOPBACK}; stop what holds them")


def _bind(port: int) -> socket.socket | None:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((LOOPBACK, port))
    except OSError:
        bound.close()
        return None
    return bound
