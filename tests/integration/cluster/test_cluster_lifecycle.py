"""The embedded cluster through its command line, from its start to its end.

The tests stand in the order in which a cluster lives: each finds what the one before it left.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dev_command import DevCommand, create_config_map, is_kept, new_directory


@pytest.fixture(scope="module")
def cluster_of_one() -> Iterator[DevCommand]:
    """Without the platform, at first."""
    with new_directory() as cluster:
        cluster.up("--nodes=1", "--gpus=1", "--only=cluster")
        yield cluster


async def test_up_makes_a_bare_cluster_into_the_platform(cluster_of_one: DevCommand) -> None:
    await create_config_map(cluster_of_one, "from-before")
    bare = cluster_of_one.processes()
    assert bare

    cluster_of_one.up()

    status = cluster_of_one.status()
    assert {"api", "reconciler"} <= {each["name"] for each in status["processes"]}
    assert {each["state"] for each in status["processes"]} == {"ready", "done"}
    assert await is_kept(cluster_of_one, "from-before")


def test_up_of_a_running_cluster_starts_nothing_and_can_resize_it(cluster_of_one: DevCommand) -> None:
    before, bootstraps = cluster_of_one.processes(), cluster_of_one.bootstraps()
    cluster_of_one.up("--nodes=2")
    assert before <= cluster_of_one.processes()
    assert cluster_of_one.bootstraps() == bootstraps
    assert cluster_of_one.status()["supervisor_pid"] in before


def test_a_running_cluster_is_found_or_named_from_any_directory(cluster_of_one: DevCommand, tmp_path: Path) -> None:
    """Others may run beside it: then it is one of those to choose from."""
    command = (sys.executable, "-m", "gpu_platform.cli", "dev", "env")
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False)
    root = str(cluster_of_one.directory.root)
    if result.returncode == 0:
        assert result.stderr == f"using the cluster in {root}\n"
        assert f"export KUBECONFIG={root}/kubeconfig" in result.stdout.splitlines()
    else:
        assert root in result.stderr.partition("--dir: ")[2]
    assert "dev up" not in result.stderr


def test_down_ends_every_process(cluster_of_one: DevCommand) -> None:
    assert "stopped" in cluster_of_one.run("down").stdout
    assert not cluster_of_one.processes()
    assert cluster_of_one.status()["phase"] == "stopped"
    assert "nothing was running" in cluster_of_one.run("down").stdout


def test_commands_on_a_directory_without_a_cluster_say_how_to_start_one(tmp_path: Path) -> None:
    nothing = DevCommand(tmp_path / "nothing")
    result = nothing.run("env")
    assert result.returncode == 2
    assert f"start one there with `gpu-platform dev up --dir {nothing.directory.root}`" in result.stderr
    assert nothing.status()["phase"] == "stopped"
