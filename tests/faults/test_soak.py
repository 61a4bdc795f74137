"""Processes are killed for minutes: what was acknowledged is there afterwards, and everything works again."""

import asyncio
import contextlib
import os
import random
import signal
import time
from dataclasses import dataclass, field

import nats.errors
import nats.js.errors

from gpu_platform.devcluster.credentials import credentials_file
from gpu_platform.devcluster.record import read_status
from gpu_platform.kube import KubeClient, KubeError
from gpu_platform.kube.paths import CONFIG_MAPS
from gpu_platform.nats.connection import QueueAccess, open_queue
from gpu_platform.nats.permissions import QueueUser
from tests.support.clusters import RunningCluster
from tests.support.fault_report import FaultReport
from tests.support.units_and_stock import (
    claim,
    create_unit,
    delete_unit,
    stock_pool,
    unit_body,
    wait_pool_available,
    wait_unit_phase,
)
from tests.support.waiting import eventually

SOAK_SECONDS = float(os.environ.get("SOAK_SECONDS", "300"))
PAUSE_SECONDS = (1.0, 6.0)
VICTIMS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "host-node",
    "nats-server",
    "reconciler",
)


@dataclass
class Acknowledged:
    objects: list[str] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)


async def test_nothing_acknowledged_is_lost_and_units_are_served_again(
    kube: KubeClient, cluster: RunningCluster, faults: FaultReport
) -> None:
    acknowledged = Acknowledged()
    async with stock_pool(kube, "soak", 4):
        writers = [
            asyncio.create_task(write_objects(kube, acknowledged)),
            asyncio.create_task(publish_messages(cluster, acknowledged)),
        ]
        await kill_again_and_again(cluster, faults)
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
        await everything_is_ready(cluster)
        await wait_pool_available(kube, "soak", 4)
        stock = await claim(kube, "soak", "after-the-storm")
        await create_unit(kube, unit_body("after-the-storm", stock=stock))
        await wait_unit_phase(kube, "after-the-storm", "Ready")
        await delete_unit(kube, "after-the-storm")
    assert len(acknowledged.objects) > SOAK_SECONDS / 10
    stored = await kube.get(CONFIG_MAPS.collection("default"), {"labelSelector": "soak=yes"}, timeout=60)
    assert {item["metadata"]["name"] for item in stored["items"]} >= set(acknowledged.objects)
    async with open_queue(access_to(cluster), "soak") as stream:
        info = await stream.stream_info("SOAK")
    assert len(acknowledged.messages) > SOAK_SECONDS / 10
    assert info.state.last_seq >= max(acknowledged.messages)
    assert info.state.messages == info.state.last_seq
    faults.held("acknowledged objects are kept", "acknowledged messages are kept", "units are served again")


async def kill_again_and_again(cluster: RunningCluster, faults: FaultReport) -> None:
    deadline = time.monotonic() + SOAK_SECONDS
    while time.monotonic() < deadline:
        name = random.choice(VICTIMS)
        victim = next(process for process in read_status(cluster.directory).processes if process.name == name)
        if victim.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim.pid, signal.SIGKILL)
                faults.hit(f"{name} killed")
        await asyncio.sleep(random.uniform(*PAUSE_SECONDS))


async def everything_is_ready(cluster: RunningCluster) -> None:
    async def are_ready() -> bool:
        return all(process.is_fine for process in read_status(cluster.directory).processes)

    await eventually(are_ready)


async def write_objects(kube: KubeClient, acknowledged: Acknowledged) -> None:
    number = 0
    while True:
        number += 1
        name = f"soak-{number}"
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"soak": "yes"}}}
        try:
            await kube.create(CONFIG_MAPS.collection("default"), body, timeout=2)
            acknowledged.objects.append(name)
        except KubeError:
            await asyncio.sleep(0.2)
        await asyncio.sleep(0.05)


async def publish_messages(cluster: RunningCluster, acknowledged: Acknowledged) -> None:
    async with open_queue(access_to(cluster), "soak") as stream:
        await stream.add_stream(name="SOAK", subjects=["soak"])
        while True:
            with contextlib.suppress(nats.errors.Error, nats.js.errors.Error):
                acknowledged.messages.append((await stream.publish("soak", b"x", timeout=2)).seq)
            await asyncio.sleep(0.05)


def access_to(cluster: RunningCluster) -> QueueAccess:
    return QueueAccess(cluster.record.nats_url, credentials_file(cluster.directory, QueueUser.PLATFORM))
