"""The project's own Pulumi program on the cluster that `dev up` has started, as `make up` runs it."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_platform.devcluster import lifecycle
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.parts import ensure_parts
from tests.integration.conftest import RunningCluster

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def young() -> Iterator[RunningCluster]:
    """A cluster of its own: the session's is not to belong to a stack."""
    with tempfile.TemporaryDirectory(prefix="gpu-test-") as root:
        directory = ClusterDirectory(Path(root) / "cluster")
        record = lifecycle.up(directory, ensure_parts(), lifecycle.Wish(nodes=1, gpus=8, tied=True))
        try:
            yield RunningCluster(directory, record)
        finally:
            lifecycle.down(directory)


def run(cluster: RunningCluster, *command: str) -> str:
    environment = os.environ | cluster.environment(os.environ["PATH"])
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_up_takes_over_what_the_cluster_began_with_and_a_second_one_changes_nothing(young: RunningCluster) -> None:
    def names() -> set[str]:
        kinds = "namespaces,gpuspecs,priorityclasses"
        return set(run(young, "kubectl", "get", kinds, "-o", "name").split())

    before = names()
    run(young, "pulumi", "stack", "select", "--create", "dev")
    run(young, "pulumi", "--non-interactive", "up", "--yes", "--skip-preview")
    assert names() == before
    run(young, "pulumi", "--non-interactive", "preview", "--expect-no-changes")
    both_ways = json.loads(run(young, "gpu-platform", "bootstrap", "up", "--expect-no-changes", "--json"))
    assert set(both_ways) == {"same"}
    table = run(young, "gpu-platform", "preview", "--markdown", "--stack", "dev")
    assert "### Preview: 0 create, 0 update, 0 replace, 0 delete, 42 same" in table
    owner = "jsonpath={.metadata.annotations.runtime\\.lokiwager\\.io/owner-stack}"
    assert run(young, "kubectl", "get", "gpuspec", "g1.1", "-o", owner) == "gpu-platform/dev"
