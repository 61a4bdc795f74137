"""The embedded cluster survives violent deaths of its processes, and leaves nothing behind."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_platform.devcluster.lifecycle import current_status
from gpu_platform.devcluster.record import ProcessStatus
from gpu_platform.kube import open_client
from gpu_platform.kube.paths import NODES
from gpu_platform.nats.connection import QueueAccess, open_queue
from tests.support.dev_command import DevCommand, create_config_map, is_kept, new_directory
from tests.support.fault_report import FaultReport
from tests.support.waiting import NotYet, eventually

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def first() -> Iterator[DevCommand]:
    with new_directory() as cluster:
        cluster.up("--nodes=1", "--gpus=2")
        yield cluster


def get_process(cluster: DevCommand, name: str) -> ProcessStatus:
    return next(each for each in current_status(cluster.directory).processes if each.name == name)


async def kill(cluster: DevCommand, name: str, faults: FaultReport) -> None:
    """Returns when it runs again, and all others do."""
    before = get_process(cluster, name)
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)

    async def is_ready_again() -> bool | NotYet:
        states = {each.name: each.state for each in current_status(cluster.directory).processes}
        restarted = get_process(cluster, name).restarts > before.restarts
        return (restarted and set(states.values()) == {"ready", "done"}) or NotYet(states)

    await eventually(is_ready_again)
    faults.hit(f"{name}: SIGKILL")


async def test_jetstream_keeps_every_acknowledged_message_over_kill_9(first: DevCommand, faults: FaultReport) -> None:
    environment = first.environment()
    access = QueueAccess(environment["NATS_URL"], Path(environment["NATS_CREDS"]))
    async with open_queue(access, "test") as stream:
        await stream.add_stream(name="KEPT", subjects=["kept.*"])
        acknowledged = [(await stream.publish("kept.one", str(number).encode())).seq for number in range(200)]
        await kill(first, "nats-server", faults)
    async with open_queue(access, "test") as stream:
        info = await stream.stream_info("KEPT")
        assert info.state.messages == len(acknowledged)
        assert info.state.last_seq == acknowledged[-1]
    faults.held("every acknowledged message is kept")


@pytest.mark.parametrize("process", ["etcd", "kube-apiserver"])
async def test_objects_survive_kill_9(first: DevCommand, faults: FaultReport, process: str) -> None:
    name = f"before-{process}"
    await create_config_map(first, name)
    await kill(first, process, faults)
    assert await eventually(lambda: is_kept(first, name))
    faults.held("every object is kept")


async def test_up_after_kill_9_of_the_supervisor_continues_with_the_same_objects(
    first: DevCommand, faults: FaultReport
) -> None:
    await create_config_map(first, "before-the-crash")
    url = first.environment()["NATS_URL"]
    before = first.processes()
    os.kill(first.status()["supervisor_pid"], signal.SIGKILL)
    faults.hit("supervisor: SIGKILL")
    first.up()
    assert await is_kept(first, "before-the-crash")
    created, same = first.bootstraps()
    assert same == created.replace("create", "same")
    assert not before & first.processes()
    assert first.environment()["NATS_URL"] == url
    faults.held("every object is kept", "no process of the dead supervisor is left")


async def test_two_clusters_run_side_by_side(first: DevCommand, faults: FaultReport) -> None:
    await create_config_map(first, "only-in-the-first")
    assert await is_kept(first, "only-in-the-first")
    with new_directory() as second:
        second.up("--nodes=1", "--gpus=1", "--only=cluster")
        faults.hit("clusters at once", 2)
        assert not await is_kept(second, "only-in-the-first")
        async with await open_client(second.directory.kubeconfig) as kube:
            names = {node["metadata"]["name"] for node in (await kube.get(NODES.collection()))["items"]}
    assert names == {"host", "sim-h100-0"}
    faults.held("no cluster sees another one's objects")


async def test_ctrl_c_in_the_foreground_leaves_no_process(faults: FaultReport) -> None:
    with (
        new_directory() as cluster,
        subprocess.Popen(
            cluster.build("up", "--foreground", "--only=cluster", "--nodes=0"), stdout=subprocess.PIPE, text=True
        ) as foreground,
    ):
        try:
            assert foreground.stdout is not None
            assert any("ready in" in line for line in foreground.stdout)
            assert cluster.processes()
            foreground.send_signal(signal.SIGINT)
            foreground.wait(timeout=180)
            faults.hit("foreground: SIGINT")
        finally:
            foreground.kill()

        async def nothing_is_left() -> bool | NotYet:
            left = cluster.processes()
            return not left or NotYet(left)

        await eventually(nothing_is_left)
    faults.held("no process is left")
