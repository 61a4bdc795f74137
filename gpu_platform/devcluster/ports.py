"""Loopback ports: the recorded ones where they are still free, others where they are not."""

import socket
from collections.abc import Mapping

LOOPBACK = "127.0.0.1"

PORT_NAMES = (
    "etcd",
    "etcd-peer",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "nats",
    "nats-monitor",
    "reconciler",
    "reconciler-metrics",
)


def choose_ports(recorded: Mapping[str, int]) -> dict[str, int]:
    """A free port per name. A kept port keeps yesterday's kubeconfig and NATS URL valid."""
    chosen: dict[str, int] = {}
    held: list[socket.socket] = []
    try:
        for name in PORT_NAMES:
            # All sockets stay open until every name has one, so that no port is handed out twice.
            bound = _bind(recorded.get(name, 0)) or _bind(0)
            if bound is None:
                raise OSError("no free loopback port")
            held.append(bound)
            chosen[name] = bound.getsockname()[1]
    finally:
        for bound in held:
            bound.close()
    return chosen


def _bind(port: int) -> socket.socket | None:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((LOOPBACK, port))
    except OSError:
        bound.close()
        return None
    return bound
