"""Which cluster is meant by a command that names no directory."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpu_platform.cli.app import app
from gpu_platform.devcluster import DevClusterError
from gpu_platform.devcluster.directory import ClusterDirectory, exclusive_lock
from gpu_platform.devcluster.lifecycle import choose_directory, find_nearby, list_running
from gpu_platform.devcluster.record import PORT_NAMES, ClusterRecord, save_record

HERE, NEARBY, FIRST, SECOND = (Path(text) for text in ("/here/.dev", "/.dev", "/a/.dev", "/b/.dev"))


def make_cluster(root: Path) -> ClusterDirectory:
    directory = ClusterDirectory(root)
    directory.create()
    save_record(directory, replace(ClusterRecord.new(), ports=dict.fromkeys(PORT_NAMES, 20_000)))
    return directory


@pytest.mark.parametrize(
    ("nearby", "running", "chosen"),
    [
        (NEARBY, (), NEARBY),
        (NEARBY, (FIRST,), NEARBY),
        (NEARBY, (FIRST, SECOND), NEARBY),
        (None, (FIRST,), FIRST),
    ],
)
def test_a_cluster_nearby_is_meant_or_else_the_one_that_runs(
    nearby: Path | None, running: tuple[Path, ...], chosen: Path
) -> None:
    assert choose_directory(HERE, nearby, running) == chosen


def test_without_a_cluster_it_is_said_where_was_looked_and_what_to_do() -> None:
    with pytest.raises(DevClusterError, match=r"no cluster in /here/\.dev.*none runs.*--dir.*`gpu-platform dev up`"):
        choose_directory(HERE, None, ())


def test_of_several_clusters_one_is_to_be_named_and_no_other_is_offered() -> None:
    with pytest.raises(DevClusterError, match=r"no cluster in /here/\.dev.*--dir: /a/\.dev, /b/\.dev$") as refused:
        choose_directory(HERE, None, (FIRST, SECOND))
    assert "dev up" not in str(refused.value)


def test_nearby_is_the_nearest_directory_with_a_cluster(tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner"
    (inner / ".dev").mkdir(parents=True)
    assert find_nearby(inner) is None
    outer = make_cluster(tmp_path / "outer" / ".dev")
    assert find_nearby(inner) == outer.root
    nearer = make_cluster(inner / ".dev")
    assert find_nearby(inner) == nearer.root


def test_a_cluster_runs_if_its_supervisor_does_and_holds_its_lock(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    running, dead = make_cluster(tmp_path / "running"), make_cluster(tmp_path / "dead")
    supervisor = ["/venv/bin/python", "-m", "gpu_platform.devcluster.supervisor"]
    command_lines = [[*supervisor, str(running.root)], [*supervisor, str(dead.root)], ["/bin/sh"], []]
    for number, words in enumerate(command_lines, 100):
        (proc / str(number)).mkdir(parents=True)
        (proc / str(number) / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    (proc / "999").mkdir()
    (proc / "self").mkdir()

    with exclusive_lock(running.supervisor_lock):
        assert list_running(proc) == (running.root,)
    assert list_running(proc) == ()


def test_the_environment_is_found_from_below_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = make_cluster(tmp_path / ".dev")
    below = tmp_path / "docs" / "adr"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)

    result = CliRunner().invoke(app, ["dev", "env", "--json"])

    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout)["KUBECONFIG"] == str(cluster.kubeconfig)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_the_cluster_of_another_user_is_not_nearby(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path / ".dev")
    directory.root.mkdir()
    directory.record.write_text("{}")
    assert find_nearby(tmp_path) == directory.root
    os.chown(directory.record, 65_534, 65_534)
    assert find_nearby(tmp_path) is None
