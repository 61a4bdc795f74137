"""The project's own Pulumi program on the cluster that `dev up` has made with it, as `make up` runs it."""

import json
import os
import subprocess

from tests.architecture.repository import ROOT
from tests.support.clusters import RunningCluster


def run(cluster: RunningCluster, *command: str) -> str:
    environment = os.environ | cluster.environment(os.environ["PATH"])
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_dev_up_has_made_all_that_the_program_declares_whichever_way_it_is_run(cluster: RunningCluster) -> None:
    run(cluster, "pulumi", "--non-interactive", "preview", "--expect-no-changes")
    both_ways = json.loads(run(cluster, "gpu-platform", "bootstrap", "up", "--expect-no-changes", "--json"))
    assert set(both_ways) == {"same"}
    table = run(cluster, "gpu-platform", "preview", "--markdown", "--stack", "dev")
    assert f"### Preview: 0 create, 0 update, 0 replace, 0 delete, {both_ways['same']} same" in table


def test_what_dev_up_made_belongs_to_the_stack(cluster: RunningCluster) -> None:
    owner = "jsonpath={.metadata.annotations.runtime\\.lokiwager\\.io/owner-stack}"
    assert run(cluster, "kubectl", "get", "gpuspec", "g1.1", "-o", owner) == "gpu-platform/dev"
