"""`gpu-platform dev` as a person runs it, each on a directory of its own."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpu_platform.devcluster.child_process import CLUSTER_MARK, find_marked
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.record import get_record
from gpu_platform.kube import KubeError, open_client
from gpu_platform.kube.paths import CONFIG_MAPS

SECONDS = 300


class DevCommand:
    def __init__(self, root: Path) -> None:
        self.directory = ClusterDirectory(root)

    def build(self, command: str, *options: str) -> list[str]:
        place = ("--dir", str(self.directory.root))
        return [sys.executable, "-m", "gpu_platform.cli", "dev", command, *options, *place]

    def run(self, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.build(command, *options), capture_output=True, text=True, timeout=SECONDS, check=False
        )

    def up(self, *options: str) -> None:
        result = self.run("up", *options)
        assert result.returncode == 0, result.stdout + result.stderr

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.run("status", "--json").stdout)
        return status

    def environment(self) -> dict[str, str]:
        variables: dict[str, str] = json.loads(self.run("env", "--json").stdout)
        return variables

    def processes(self) -> set[int]:
        """All that belong to the cluster, whatever became of their parents."""
        return set(find_marked(CLUSTER_MARK, get_record(self.directory).id))

    def bootstraps(self) -> list[str]:
        """What each run of the bootstrap came to."""
        lines = self.directory.log_of("bootstrap").read_text().splitlines()
        return [line.split(":")[1].split(", in")[0].strip() for line in lines if line.startswith("up: ")]


@contextmanager
def new_directory() -> Iterator[DevCommand]:
    """Nothing runs there at the end."""
    with tempfile.TemporaryDirectory(prefix="gpu-test-") as root:
        command = DevCommand(Path(root) / "cluster")
        try:
            yield command
        finally:
            command.run("down")


async def create_config_map(cluster: DevCommand, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"kept": "yes"}}
    async with await open_client(cluster.directory.kubeconfig) as kube:
        await kube.create(CONFIG_MAPS.collection("default"), body)


async def is_kept(cluster: DevCommand, name: str) -> bool:
    try:
        async with await open_client(cluster.directory.kubeconfig) as kube:
            return bool((await kube.get(CONFIG_MAPS.item(name, "default")))["data"] == {"kept": "yes"})
    except KubeError:
        return False
