"""The embedded cluster through its command line: it survives violent deaths and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpu_platform.adapters.kube import KubeError, open_client
from gpu_platform.adapters.kube.paths import CONFIG_MAPS, NODES
from gpu_platform.adapters.queue.connection import QueueAccess, open_queue
from gpu_platform.devcluster.child_process import CLUSTER_MARK, find_marked
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.record import get_record
from tests.support.waiting import eventually


class CommandLine:
    """`gpu-platform dev` on a directory of its own."""

    def __init__(self, root: Path) -> None:
        self.directory = ClusterDirectory(root)

    def command(self, command: str, *options: str) -> list[str]:
        place = ("--dir", str(self.directory.root))
        return [sys.executable, "-m", "gpu_platform.cli", "dev", command, *options, *place]

    def dev(self, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(command, *options),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def up(self, *options: str) -> None:
        result = self.dev("up", *options)
        assert result.returncode == 0, result.stdout + result.stderr

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.dev("status", "--json").stdout)
        return status

    def pid_of(self, process: str) -> int:
        return next(int(each["pid"]) for each in self.status()["processes"] if each["name"] == process)

    def restarts_of(self, process: str) -> int:
        return next(int(each["restarts"]) for each in self.status()["processes"] if each["name"] == process)

    def processes(self) -> set[int]:
        return set(find_marked(CLUSTER_MARK, get_record(self.directory).id))

    def environment(self) -> dict[str, str]:
        variables: dict[str, str] = json.loads(self.dev("env", "--json").stdout)
        return variables

    def bootstraps(self) -> list[str]:
        """What each run of the bootstrap came to."""
        lines = self.directory.log_of("bootstrap").read_text().splitlines()
        return [line.split(":")[1].split(", in")[0].strip() for line in lines if line.startswith("up: ")]


@pytest.fixture(scope="module")
def first() -> Iterator[CommandLine]:
    yield from _cluster("--nodes=1", "--gpus=2")


@pytest.fixture
def second() -> Iterator[CommandLine]:
    yield from _cluster("--nodes=1", "--gpus=1", "--only=cluster")


def _cluster(*options: str) -> Iterator[CommandLine]:
    with tempfile.TemporaryDirectory(prefix="gpu-test-") as root:
        cluster = CommandLine(Path(root) / "cluster")
        try:
            cluster.up(*options)
            yield cluster
        finally:
            cluster.dev("down")


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"kept": "yes"}}


async def kept(cluster: CommandLine, name: str) -> bool:
    try:
        async with await open_client(cluster.directory.kubeconfig) as kube:
            return bool((await kube.get(CONFIG_MAPS.item(name, "default")))["data"] == {"kept": "yes"})
    except KubeError:
        return False


async def create_config_map(cluster: CommandLine, name: str) -> None:
    async with await open_client(cluster.directory.kubeconfig) as kube:
        await kube.create(CONFIG_MAPS.collection("default"), config_map(name))


async def is_ready_again(cluster: CommandLine, process: str, restarts: int) -> None:
    async def restarted() -> bool:
        status = cluster.status()
        states = {each["state"] for each in status["processes"]}
        return cluster.restarts_of(process) > restarts and states == {"ready", "done"}

    await eventually(restarted, within=120)


async def test_jetstream_keeps_every_acknowledged_message_over_kill_9(first: CommandLine) -> None:
    environment = first.environment()
    access = QueueAccess(environment["NATS_URL"], Path(environment["NATS_CREDS"]))
    async with open_queue(access, "test") as stream:
        await stream.add_stream(name="KEPT", subjects=["kept.*"])
        acknowledged = [(await stream.publish("kept.one", str(number).encode())).seq for number in range(200)]
        restarts = first.restarts_of("nats-server")
        os.kill(first.pid_of("nats-server"), signal.SIGKILL)
    await is_ready_again(first, "nats-server", restarts)
    async with open_queue(access, "test") as stream:
        info = await stream.stream_info("KEPT")
        assert info.state.messages == len(acknowledged)
        assert info.state.last_seq == acknowledged[-1]


@pytest.mark.parametrize("process", ["etcd", "kube-apiserver"])
async def test_objects_survive_kill_9(first: CommandLine, process: str) -> None:
    name = f"before-{process}"
    await create_config_map(first, name)
    restarts = first.restarts_of(process)
    os.kill(first.pid_of(process), signal.SIGKILL)
    await is_ready_again(first, process, restarts)
    assert await eventually(lambda: kept(first, name))


async def test_up_after_kill_9_of_the_supervisor_continues_with_the_same_objects(first: CommandLine) -> None:
    await create_config_map(first, "before-the-crash")
    url = first.environment()["NATS_URL"]
    before = first.processes()
    os.kill(first.status()["supervisor_pid"], signal.SIGKILL)
    first.up()
    assert await kept(first, "before-the-crash")
    created, same = first.bootstraps()
    assert same == created.replace("create", "same")
    assert not before & first.processes()
    assert first.environment()["NATS_URL"] == url


def test_up_of_a_running_cluster_starts_nothing_and_can_resize_it(first: CommandLine) -> None:
    before, bootstraps = first.processes(), first.bootstraps()
    first.up("--nodes=2")
    assert before <= first.processes()
    assert first.bootstraps() == bootstraps
    assert first.status()["supervisor_pid"] in before


async def test_two_clusters_run_side_by_side(first: CommandLine, second: CommandLine) -> None:
    await create_config_map(first, "only-in-the-first")
    assert await kept(first, "only-in-the-first")
    assert not await kept(second, "only-in-the-first")
    async with await open_client(second.directory.kubeconfig) as kube:
        names = {node["metadata"]["name"] for node in (await kube.get(NODES.collection()))["items"]}
    assert names == {"host", "sim-h100-0"}


def test_up_makes_a_bare_cluster_into_the_platform_and_down_ends_every_process(second: CommandLine) -> None:
    second.up()
    assert {"api", "reconciler"} <= {each["name"] for each in second.status()["processes"]}
    assert second.processes()
    assert "stopped" in second.dev("down").stdout
    assert not second.processes()
    assert second.status()["phase"] == "stopped"
    assert "nothing was running" in second.dev("down").stdout


def test_ctrl_c_in_the_foreground_leaves_no_process() -> None:
    with tempfile.TemporaryDirectory(prefix="gpu-test-") as root:
        cluster = CommandLine(Path(root) / "cluster")
        with subprocess.Popen(
            cluster.command("up", "--foreground", "--only=cluster", "--nodes=0"), stdout=subprocess.PIPE, text=True
        ) as foreground:
            try:
                assert foreground.stdout is not None
                assert any("ready in" in line for line in foreground.stdout)
                assert cluster.processes()
                foreground.send_signal(signal.SIGINT)
                foreground.wait(timeout=60)
            finally:
                foreground.kill()
        deadline = time.monotonic() + 30
        while cluster.processes() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not cluster.processes()


def test_commands_on_a_directory_without_a_cluster_say_how_to_start_one(tmp_path: Path) -> None:
    cluster = CommandLine(tmp_path / "nothing")
    result = cluster.dev("env")
    assert result.returncode == 2
    assert "start one with `gpu-platform dev up`" in " ".join(result.stderr.split())
    assert cluster.status()["phase"] == "stopped"
