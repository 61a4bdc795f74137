"""Loopback ports: the recorded ones where they are still free, others where they are not; reserved while in use."""

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
    "api-metrics",
    "api-probes",
    "reconciler",
    "reconciler-metrics",
    "stack-worker",
    "stack-worker-metrics",
)


def reserve_ports(recorded: Mapping[str, int]) -> dict[str, socket.socket]:
    """A bound socket per name. A kept port keeps yesterday's kubeconfig and NATS URL valid.

    The port is reserved as long as the socket is open: nothing else here chooses it, also while its server has not
    started yet or is being restarted. The server itself can listen on it, because servers set SO_REUSEADDR.
    """
    reserved: dict[str, socket.socket] = {}
    try:
        for name in PORT_NAMES:
            kept = _bind(recorded[name], reuse=True) if name in recorded else None
            reserved[name] = kept or _bind_any()
    except BaseException:
        close_all(reserved)
        raise
    return reserved


def close_all(reserved: Mapping[str, socket.socket]) -> None:
    for each in reserved.values():
        each.close()


def _bind_any() -> socket.socket:
    for port in random.sample(OURS, k=len(OURS)):
        if bound := _bind(port, reuse=False):
            return bound
    raise DevClusterError(f"no port of {OURS.start} to {OURS.stop - 1} is free on {LOOPBACK}; stop what holds them")


def _bind(port: int, *, reuse: bool) -> socket.socket | None:
    """With `reuse`, connections of the last server that have not quite ended do not matter."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
    try:
        bound.bind((LOOPBACK, port))
    except OSError:
        bound.close()
        return None
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return bound
