"""The Node: its object and Lease with the heartbeat that keeps them alive, and the addresses of its pods.

A pod has a real address under 127.A that processes can bind, shown as 10.A in its status. A belongs to one agent on
this machine. It is reserved by an abstract Unix socket, because those have exactly the scope of loopback addresses
(the network namespace) and the kernel frees them when the agent dies.
"""

import asyncio
import hashlib
import ipaddress
import itertools
import logging
import os
import platform
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

from gpu_platform.clock import format_micro_time, format_time, now_utc
from gpu_platform.devcluster import DevClusterError
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, KubeError, NotFoundError, PatchType
from gpu_platform.kube.paths import LEASES, NODES

NODE_NAME = "host"

POD_ADDRESS_ANNOTATION = "runtime.lokiwager.io/host-address"
"""The pod's real address, 127.A.b.c; its status shows 10.A.b.c because EndpointSlices refuse loopback."""

HOST_NODE_TAINT = "runtime.lokiwager.io/host-node"
HOST_ADDRESS = "127.0.0.1"

PODS = 200
"""Twice what the node is made for."""

DISK = "1Ti"
"""For the scheduler: nothing here measures what a process writes."""

LEASE_SECONDS = 40
"""As kubelet's: four missed renewals and the node is not ready."""

TAINT = {"key": HOST_NODE_TAINT, "value": "true", "effect": "NoSchedule"}

NETWORKS = range(1, 255)
"""127.0 stays with the machine, 127.255 has the broadcast address."""

HOSTS_PER_BLOCK = 254
LEASE_NAMESPACE = "kube-node-lease"

RENEW = timedelta(seconds=10)
"""As kubelet renews its lease."""

STATUS = timedelta(seconds=60)

RETRY = timedelta(seconds=1)
"""After a failure: an API server that restarts takes a few seconds, and pods need their node."""

LAST_WORD_SECONDS = 1.0
"""For saying that the node stops: the API server may be gone before us."""

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Machine:
    operating_system: str
    architecture: str
    kernel: str
    processors: int
    memory_kibibytes: int
    gpus: int
    """Simulated: the scheduler counts them, nothing else knows of them."""

    @property
    def capacity(self) -> dict[str, str]:
        return {
            "cpu": str(self.processors),
            "memory": f"{self.memory_kibibytes}Ki",
            "ephemeral-storage": DISK,
            "pods": str(PODS),
            "nvidia.com/gpu": str(self.gpus),
        }

    @property
    def labels(self) -> dict[str, str]:
        return {
            "kubernetes.io/hostname": NODE_NAME,
            "kubernetes.io/os": self.operating_system,
            "kubernetes.io/arch": self.architecture,
            "nvidia.com/gpu.product": "Host-Process",
            "nvidia.com/gpu.present": "true",
            "runtime.lokiwager.io/node": NODE_NAME,
        }


def build_node(machine: Machine) -> Json:
    """Only a new Node carries its taint: NodeRestriction lets no node change its own taints later."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE_NAME, "labels": machine.labels},
        "spec": {"taints": [TAINT]},
    }


def plan_labels(node: Json, machine: Machine) -> dict[str, str]:
    """The labels that a Node from an earlier run lacks."""
    present: Mapping[str, str] = node["metadata"].get("labels") or {}
    return {key: value for key, value in machine.labels.items() if present.get(key) != value}


def is_tainted(node: Json) -> bool:
    return any(taint["key"] == HOST_NODE_TAINT for taint in node["spec"].get("taints") or [])


def build_node_status(node: Json, machine: Machine, port: int, *, ready: bool, now: datetime) -> Json:
    known = {condition["type"]: condition for condition in (node.get("status") or {}).get("conditions") or []}
    reason, message = (
        ("HostNodeReady", "the host node runs pods as local processes")
        if ready
        else ("HostNodeStopped", "the host node's agent has been stopped")
    )
    conditions = [
        *(
            _condition(known, pressure, "False", "NotMeasured", "the host node does not measure it", now)
            for pressure in ("MemoryPressure", "DiskPressure", "PIDPressure")
        ),
        _condition(known, "Ready", "True" if ready else "False", reason, message, now),
    ]
    return {
        "addresses": [
            {"type": "InternalIP", "address": HOST_ADDRESS},
            {"type": "Hostname", "address": NODE_NAME},
        ],
        "capacity": machine.capacity,
        "allocatable": machine.capacity,
        "conditions": conditions,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": {
            "architecture": machine.architecture,
            "operatingSystem": machine.operating_system,
            "kernelVersion": machine.kernel,
            "osImage": "the developer's machine",
            "containerRuntimeVersion": "process://1",
            "kubeletVersion": "v0.0.0-host-node",
            "kubeProxyVersion": "",
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
        },
    }


def build_lease(node: Json, now: datetime) -> Json:
    owner = {"apiVersion": "v1", "kind": "Node", "name": NODE_NAME, "uid": node["metadata"]["uid"]}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NODE_NAME, "ownerReferences": [owner]},
        "spec": {
            "holderIdentity": NODE_NAME,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": format_micro_time(now),
        },
    }


def _condition(known: Mapping[str, Json], kind: str, status: str, reason: str, message: str, now: datetime) -> Json:
    before = known.get(kind, {})
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": format_time(now),
        "lastTransitionTime": before["lastTransitionTime"] if before.get("status") == status else format_time(now),
    }


class PodNetwork:
    """The addresses 127.A.b.c of one agent; each is used by one pod at a time."""

    def __init__(self, number: int, reservation: socket.socket) -> None:
        self.number = number
        self._reservation = reservation
        self._taken: dict[str, str] = {}
        self._next = itertools.cycle(range(256 * HOSTS_PER_BLOCK))

    @classmethod
    def reserve(cls, cluster: str) -> Self:
        """Reserves the same network for the same cluster, as long as no other one has it."""
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
            if wish is None or wish in used or not _is_in(self.number, wish):
                wish = next(address for address in self._candidates() if address not in used)
            self._taken[uid] = wish
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


def read_machine(gpus: int) -> Machine:
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal:"))
    return Machine(
        operating_system=platform.system().lower(),
        architecture=_ARCHITECTURES.get(platform.machine(), platform.machine()),
        kernel=platform.release(),
        processors=len(os.sched_getaffinity(0)),
        memory_kibibytes=int(memory.split()[1]),
        gpus=gpus,
    )


class Heartbeat:
    def __init__(self, client: KubeClient, machine: Machine, port: int) -> None:
        self._client = client
        self._machine = machine
        self._port = port
        self._node: Json | None = None
        self._status_due_at: datetime | None = None

    async def run(self) -> None:
        """Registers the node, then renews its lease until cancelled."""
        while True:
            try:
                await self._beat(now_utc())
                await asyncio.sleep(RENEW.total_seconds())
                continue
            except NotFoundError:
                # The Node was deleted: the next beat registers it again.
                self._node = None
            except KubeError as error:
                log.warning("the node's heartbeat failed: %s", error)
            except Exception:
                log.exception("the node's heartbeat failed")
            await asyncio.sleep(RETRY.total_seconds())

    async def stop(self) -> None:
        """Reports the node as not ready, if the API server still listens."""
        if self._node is not None:
            await self._write_status(self._node, now_utc(), ready=False, timeout=LAST_WORD_SECONDS)

    async def _beat(self, now: datetime) -> None:
        if self._node is None:
            self._node = await self._register()
            self._status_due_at = None
        await self._renew_lease(self._node, now)
        if self._status_due_at is None or now >= self._status_due_at:
            self._node = await self._write_status(self._node, now, ready=True)
            self._status_due_at = now + STATUS

    async def _register(self) -> Json:
        try:
            node = await self._client.get(NODES.item(NODE_NAME))
        except NotFoundError:
            return await self._client.create(NODES.collection(), build_node(self._machine))
        if not is_tainted(node):
            log.warning("node %s lacks the taint %s, which only an admin can give back", NODE_NAME, HOST_NODE_TAINT)
        if missing := plan_labels(node, self._machine):
            node = await self._client.patch(NODES.item(NODE_NAME), {"metadata": {"labels": missing}})
        return node

    async def _renew_lease(self, node: Json, now: datetime) -> None:
        lease = build_lease(node, now)
        try:
            await self._client.patch(LEASES.item(NODE_NAME, LEASE_NAMESPACE), lease)
        except NotFoundError:
            await self._client.create(LEASES.collection(LEASE_NAMESPACE), lease)

    async def _write_status(self, node: Json, now: datetime, *, ready: bool, timeout: float = 10) -> Json:
        status = build_node_status(node, self._machine, self._port, ready=ready, now=now)
        return await self._client.patch(
            NODES.item(NODE_NAME, subresource="status"),
            {"status": status},
            PatchType.STRATEGIC,
            timeout=timeout,
        )
