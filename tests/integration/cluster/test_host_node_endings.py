"""How pods of the host node end, and that they come back when only its agent ends."""

import os
import signal
import time
from pathlib import Path

import pytest

from gpu_platform.devcluster.record import read_status
from gpu_platform.kube import KubeClient
from tests.support.clusters import RunningCluster
from tests.support.host_pods import (
    Pods,
    container,
    has_phase,
    is_ready,
    is_without_processes,
    processes,
    shell,
)
from tests.support.waiting import eventually

NEVER = 36_000
"""Seconds of grace: a pod that has gone has not waited for their end."""


@pytest.fixture
def pods(kube: KubeClient, namespace: str) -> Pods:
    return Pods(kube, namespace)


class TestDeletion:
    async def test_sigterm_is_enough_for_who_listens(self, pods: Pods) -> None:
        pod = await pods.running("polite", shell("sleep 600"), terminationGracePeriodSeconds=NEVER)
        await pods.delete("polite")
        await pods.gone("polite")
        assert processes(pod) == []

    async def test_sigkill_follows_after_the_grace(self, pods: Pods) -> None:
        script = "trap '' TERM; echo deaf; while :; do sleep 0.05; done"
        pod = await pods.running("deaf", shell(script), terminationGracePeriodSeconds=NEVER)
        await pods.log_has("deaf", "deaf")
        began = time.monotonic()
        await pods.delete("deaf", gracePeriodSeconds=1)
        await pods.gone("deaf")
        assert time.monotonic() - began > 0.9, "not before"
        assert processes(pod) == []

    async def test_the_pre_stop_hook_runs_before_sigterm(self, pods: Pods) -> None:
        main = shell("trap 'ls /data; exit' TERM; while :; do sleep 0.05; done")
        main["lifecycle"] = {"preStop": {"exec": {"command": ["touch", "/data/hook"]}}}
        deaf = shell("trap '' TERM; while :; do sleep 0.05; done", name="deaf")
        main["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        # While the other one is deaf, the log can be read.
        volumes, grace = [{"name": "data", "emptyDir": {}}], {"terminationGracePeriodSeconds": NEVER}
        await pods.running("hooked", main, deaf, volumes=volumes, **grace)
        await pods.delete("hooked")
        await pods.log_has("hooked", "hook", container="main")
        await pods.delete("hooked", gracePeriodSeconds=0)

    async def test_a_forced_deletion_ends_the_processes_too(self, pods: Pods) -> None:
        pod = await pods.running("forced", shell("trap '' TERM; while :; do sleep 0.05; done"))
        await pods.delete("forced", gracePeriodSeconds=0)
        await pods.gone("forced")
        await is_without_processes(pod)

    async def test_a_child_that_left_its_group_is_ended_too(self, pods: Pods) -> None:
        pod = await pods.running("daemon", shell("(setsid sleep 600 &) ; (setsid nohup sleep 601 &) ; sleep 602"))

        async def has_three() -> bool:
            return len(processes(pod)) >= 3

        await eventually(has_three)
        await pods.delete("daemon")
        await pods.gone("daemon")
        assert processes(pod) == []


async def test_pods_come_back_after_the_agent_was_killed(pods: Pods, cluster: RunningCluster) -> None:
    kept = await pods.running("kept", shell("sleep 600 & wait"))
    lost = await pods.running("lost", shell("sleep 600"), restartPolicy="Never")
    leftover = Path(cluster.record.pods, "00000000")
    leftover.mkdir()
    agent = next(each for each in read_status(cluster.directory).processes if each.name == "host-node")
    assert agent.pid is not None
    before = set(processes(kept) + processes(lost))
    os.kill(agent.pid, signal.SIGKILL)
    again = await pods.wait("kept", lambda pod: container(pod)["restartCount"] == 1 and is_ready(pod))
    await pods.wait("lost", has_phase("Failed"))
    assert again["status"]["podIP"] == kept["status"]["podIP"]
    assert not before & set(processes(kept) + processes(lost))
    assert not leftover.exists()
