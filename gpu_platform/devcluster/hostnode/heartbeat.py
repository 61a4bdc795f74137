"""Keeps the Node and its Lease alive. The agent runs one; nothing else writes the Node."""

import asyncio
import logging
import os
import platform
from datetime import datetime, timedelta
from pathlib import Path

from gpu_platform.devcluster.hostnode.names import HOST_NODE_TAINT, NODE_NAME
from gpu_platform.devcluster.hostnode.node import (
    Machine,
    build_lease,
    build_node,
    build_node_status,
    is_tainted,
    plan_labels,
)
from gpu_platform.devcluster.hostnode.times import utc_now
from gpu_platform.kube import KubeClient, KubeError, NotFoundError, PatchType
from gpu_platform.kube.client import Json
from gpu_platform.kube.paths import LEASES, NODES

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
        """Register, then renew for ever."""
        while True:
            try:
                await self._beat(utc_now())
                await asyncio.sleep(RENEW.total_seconds())
                continue
            except NotFoundError:
                # Somebody deleted the Node: the next beat registers it again.
                self._node = None
            except KubeError as error:
                log.warning("the node's heartbeat failed: %s", error)
            except Exception:
                log.exception("the node's heartbeat failed")
            await asyncio.sleep(RETRY.total_seconds())

    async def stop(self) -> None:
        """Say that the node is not ready, if anybody still listens."""
        if self._node is not None:
            await self._write_status(self._node, utc_now(), ready=False, timeout=LAST_WORD_SECONDS)

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
