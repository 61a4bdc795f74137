"""Which pods the node holds, and one pod's task: with real processes, and an API server that can be told to fail."""

import asyncio
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
from gpu_platform.devcluster.hostnode.volumes import PodDirectory
from gpu_platform.kube import KubeClient, KubeError, UnreachableError, WatchEvent
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


AWAY = UnreachableError(0, "Unreachable", "nobody there")


class FakeApi:
    """Takes the status of one pod."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.status: dict[str, Any] = {}
        self.deletions: list[dict[str, Any]] = []
        self.worker: PodWorker | None = None

    async def patch(self, _: str, body: dict[str, Any], *__: Any, **___: Any) -> dict[str, Any]:
        if self.failures:
            raise self.failures.pop(0)
        assert self.worker is not None
        self.status = body["status"]
        metadata = self.worker.pod["metadata"] | {"annotations": body["metadata"]["annotations"]}
        return self.worker.pod | {
            "metadata": metadata,
            "status": self.status | {"podIPs": self.status["podIPs"][:1]},
        }

    async def delete(self, _: str, body: dict[str, Any]) -> None:
        assert self.worker is not None
        self.deletions.append(body)
        self.worker.vanish()


class Started:
    def __init__(self, pod: dict[str, Any], root: Path, api: FakeApi, session: aiohttp.ClientSession) -> None:
        client = cast(KubeClient, api)
        inherited = {"PATH": os.environ["PATH"]}
        node = Surroundings(client, EventRecorder(client), session, {}, inherited)
        self.api = api
        self.worker = api.worker = PodWorker(pod, "127.0.0.1", PodDirectory(root / "pod"), node)
        self.task = asyncio.create_task(self.worker.run())

    async def reaches(self, phase: str) -> None:
        async def question() -> bool:
            return bool(self.api.status.get("phase") == phase)

        await eventually(question, within=30)

    async def ends(self) -> None:
        await asyncio.wait_for(self.task, 30)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def shell_pod(script: str, **spec: Any) -> dict[str, Any]:
    return make_pod(make_container(command=["sh", "-c", script]), **spec)


def deleted(pod: dict[str, Any]) -> dict[str, Any]:
    deletion = {"deletionTimestamp": "2030-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5}
    return pod | {"metadata": pod["metadata"] | deletion}


async def test_a_deleted_pod_is_stopped_released_and_forgotten(tmp_path: Path, session: aiohttp.ClientSession) -> None:
    pod = Started(shell_pod("sleep 60"), tmp_path, FakeApi(), session)
    await pod.reaches("Running")
    assert pod.worker.directory.path.exists()
    pod.worker.observe(deleted(pod.worker.pod))
    await pod.ends()
    assert pod.api.deletions == [{"gracePeriodSeconds": 0, "preconditions": {"uid": pod.worker.pod["metadata"]["uid"]}}]
    assert pod.api.status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    assert not pod.worker.directory.path.exists()
    assert pod.worker.runs == {}


async def test_a_pod_that_vanished_ends_without_another_word(tmp_path: Path, session: aiohttp.ClientSession) -> None:
    pod = Started(shell_pod("trap '' TERM; while :; do sleep 0.05; done"), tmp_path, FakeApi(), session)
    await pod.reaches("Running")
    pod.worker.vanish()
    await pod.ends()
    assert pod.api.deletions == []
    assert not pod.worker.directory.path.exists()


@pytest.mark.parametrize("failure", [AWAY, KubeError(422, "Invalid", "no"), RuntimeError("a bug")])
async def test_a_failed_write_is_tried_again_while_the_processes_go_on(
    tmp_path: Path, session: aiohttp.ClientSession, failure: Exception
) -> None:
    pod = Started(shell_pod("exit 0", restartPolicy="Never"), tmp_path, FakeApi(failure, failure), session)
    await pod.reaches("Succeeded")
    pod.worker.vanish()
    await pod.ends()
