"""Addresses for pods: a real one under 127.A that processes can bind, shown as 10.A in the pod's status.

A belongs to one agent on this machine. It is reserved by an abstract Unix socket, because those have exactly
the scope of loopback addresses (the network namespace) and the kernel frees them when the agent dies.
"""

import hashlib
import ipaddress
import itertools
import socket
from collections.abc import Iterator
from typing import Self

from gpu_platform.devcluster.errors import DevClusterError

NETWORKS = range(1, 255)
"""127.0 stays with the machine, 127.255 has the broadcast address."""

HOSTS_PER_BLOCK = 254


class PodNetwork:
    """The addresses 127.A.b.c of one agent; each is used by one pod at a time."""

    def __init__(self, number: int, reservation: socket.socket) -> None:
        self.number = number
        self._reservation = reservation
        self._taken: dict[str, str] = {}
        self._next = itertools.cycle(range(256 * HOSTS_PER_BLOCK))

    @classmethod
    def reserve(cls, cluster: str) -> Self:
        """The same network for the same cluster, as long as no other one has it."""
        start = int.from_bytes(hashlib.sha256(cluster.encode()).digest()[:4]) % len(NETWORKS)
        for number in [*NETWORKS[start:], *NETWORKS[:start]]:
            reservation = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                reservation.bind(f"\0gpu-platform-host-node-127.{number}")
            except OSError:
                reservation.close()
            else:
                return cls(number, reservation)
        raise DevClusterError(
            f"all {len(NETWORKS)} networks for host nodes on this machine are taken: "
            "stop a development cluster that is not needed"
        )

    def close(self) -> None:
        self._reservation.close()

    def take(self, uid: str, wish: str | None = None) -> str:
        """The pod's address; a pod that had one before an agent's restart gets it again if it is free."""
        if uid not in self._taken:
            used = set(self._taken.values())
            fits = wish is not None and wish not in used and _is_in(self.number, wish)
            self._taken[uid] = wish if fits and wish else next(a for a in self._candidates() if a not in used)
        return self._taken[uid]

    def give_back(self, uid: str) -> None:
        self._taken.pop(uid, None)

    def _candidates(self) -> Iterator[str]:
        # Onward rather than from the start: an address that was just given back may still have connections.
        return (
            f"127.{self.number}.{block}.{host + 1}"
            for block, host in (divmod(index, HOSTS_PER_BLOCK) for index in self._next)
        )


def shown_address(real: str) -> str:
    """The address of the simulated pod range that stands for a real one."""
    return f"10.{real.partition('.')[2]}"


def _is_in(number: int, address: str) -> bool:
    try:
        return ipaddress.IPv4Address(address) in ipaddress.IPv4Network(f"127.{number}.0.0/16")
    except ValueError:
        return False
