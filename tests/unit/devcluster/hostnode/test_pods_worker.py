"""One pod's task with real processes and an API server that can be told to fail."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from gpu_platform.devcluster.hostnode.pod_status import EventRecorder
from gpu_platform.devcluster.hostnode.pods import PodWorker, Surroundings
from gpu_platform.devcluster.hostnode.volumes import PodDirectory
from gpu_platform.kube import KubeClient, KubeError, UnreachableError
from tests.support.waiting import eventually
from tests.unit.devcluster.hostnode.builders import make_container, make_pod

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
