"""The project's own Pulumi program, run by the built CLI and language host on a `file://` backend."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.conftest import RunningCluster

REPOSITORY = Path(__file__).resolve().parents[2]

Pulumi = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def pulumi(cluster: RunningCluster, tmp_path: Path) -> Pulumi:
    """The CLI as a person would call it at the root of the repository, with a state of its own."""
    state = tmp_path / "state"
    state.mkdir()
    environment = {
        **os.environ,
        **cluster.environment(os.environ["PATH"]),
        "PULUMI_BACKEND_URL": f"file://{state}",
        "PULUMI_HOME": str(tmp_path / "home"),
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["pulumi", "--non-interactive", *arguments],
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    assert run("stack", "init", "dev").returncode == 0
    return run


def test_preview_imports_our_packages_from_pulumis_working_directory(pulumi: Pulumi) -> None:
    preview = pulumi("preview", "--diff")
    assert preview.returncode == 0, preview.stdout + preview.stderr
    assert "+ 1 to create" in preview.stdout
    assert 'environment: "dev"' in preview.stdout


def test_up_creates_and_a_second_preview_changes_nothing(pulumi: Pulumi) -> None:
    up = pulumi("up", "--yes", "--skip-preview")
    assert up.returncode == 0, up.stdout + up.stderr
    again = pulumi("preview", "--expect-no-changes")
    assert again.returncode == 0, again.stdout + again.stderr
    outputs = json.loads(pulumi("stack", "output", "--json").stdout)
    assert outputs["namespaces"]["stock"] == "runtime-stock"


def test_a_bad_setting_is_named_before_anything_is_made(pulumi: Pulumi, tmp_path: Path) -> None:
    settings = tmp_path / "Pulumi.dev.yaml"
    settings.write_text(
        (REPOSITORY / "Pulumi.dev.yaml").read_text().replace("environment: dev", "environment: No Label")
    )
    preview = pulumi("preview", "--config-file", str(settings))
    assert preview.returncode != 0
    assert "gpu-platform:environment: String should match pattern" in preview.stdout + preview.stderr
    assert "Traceback" not in preview.stdout + preview.stderr


def test_running_the_program_leaves_the_repository_as_it_was(pulumi: Pulumi) -> None:
    before = (REPOSITORY / "Pulumi.dev.yaml").read_text()
    assert pulumi("up", "--yes", "--skip-preview").returncode == 0
    assert (REPOSITORY / "Pulumi.dev.yaml").read_text() == before
