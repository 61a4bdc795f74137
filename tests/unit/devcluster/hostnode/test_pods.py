"""Which pods the node holds, told by what the API lists and says; the pods' processes are real."""

import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from gpu_platform.devcluster.hostnode.node import PodNetwork
from gpu_platform.devcluster.hostnode.pod_status import EventRecorder
from gpu_platform.devcluster.hostnode.pods import PodSet, PodWorker, Surroundings
from gpu_platform.kube import KubeClient, UnreachableError, WatchEvent
from tests.support.waiting import eventually
from tests.unit.devcluster.hostnode.builders import make_container, make_pod

SYNCED = WatchEvent("SYNCED", {})


class AbsentApi:
    """Nothing can be written: what the node does must not depend on it."""

    async def patch(self, *_: Any, **__: Any) -> None:
        raise UnreachableError(0, "Unreachable", "nobody there")


@pytest.fixture
async def pods(tmp_path: Path) -> AsyncIterator[PodSet]:
    network = PodNetwork.reserve(secrets.token_hex(4))
    client = cast(KubeClient, AbsentApi())
    async with aiohttp.ClientSession() as session:
        node = Surroundings(client, EventRecorder(client), session, {}, {"PATH": os.environ["PATH"]})
        pods = PodSet(tmp_path, network, node)
        yield pods
        await pods.stop()
    network.close()


def make_named(name: str) -> dict[str, Any]:
    pod = make_pod(make_container(command=["sleep", "60"]))
    pod["metadata"] |= {"name": name, "uid": f"{secrets.token_hex(4)}-{name}"}
    return pod


def listed(pod: dict[str, Any]) -> WatchEvent:
    return WatchEvent("ADDED", pod, listed=True)


async def starts(worker: PodWorker | None) -> PodWorker:
    assert worker is not None

    async def question() -> bool:
        return bool(worker.runs)

    await eventually(question, within=10)
    return worker


async def is_forgotten(pods: PodSet, name: str) -> None:
    async def question() -> bool:
        return pods.find("space", name) is None

    await eventually(question, within=10)


async def test_a_pod_that_is_deleted_or_no_longer_listed_is_ended(pods: PodSet) -> None:
    kept, dropped, deleted = (make_named(name) for name in ("kept", "dropped", "deleted"))
    for event in (listed(kept), listed(dropped), listed(deleted), SYNCED):
        pods._take(event)
    workers = [await starts(pods.find("space", name)) for name in ("kept", "dropped", "deleted")]
    # Seen in a watch is not listed: the deletion that followed may be what was missed.
    for event in (WatchEvent("MODIFIED", dropped), WatchEvent("DELETED", deleted), listed(kept), SYNCED):
        pods._take(event)
    await is_forgotten(pods, "dropped")
    await is_forgotten(pods, "deleted")
    assert pods.find("space", "kept") is workers[0]
    assert [worker.directory.path.exists() for worker in workers] == [True, False, False]


async def test_directories_that_belong_to_nobody_are_removed(pods: PodSet, tmp_path: Path) -> None:
    (tmp_path / "0badcafe").mkdir()
    (tmp_path / "notes").mkdir()
    pod = make_named("pod")
    pods._take(listed(pod))
    worker = await starts(pods.find("space", "pod"))
    pods._take(SYNCED)
    assert set(tmp_path.iterdir()) == {worker.directory.path, tmp_path / "notes"}


async def test_stopping_the_node_ends_every_process(pods: PodSet) -> None:
    names = ("one", "two", "three")
    for name in names:
        pods._take(listed(make_named(name)))
    runs = [run for name in names for run in (await starts(pods.find("space", name))).runs.values()]
    await pods.stop()
    assert [run.ended.is_set() for run in runs] == [True, True, True]
