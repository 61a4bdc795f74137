"""`gpu-platform api` becomes the API's process."""

import subprocess
import sys

from typer.testing import CliRunner

from gpu_platform.cli.app import app


def test_the_api_is_a_command() -> None:
    result = CliRunner().invoke(app, ["api", "--help"])

    assert result.exit_code == 0
    assert "--config" in result.output


def test_the_command_becomes_the_process() -> None:
    """With settings that do not exist, the process itself says so: it was started, with its options."""
    command = [sys.executable, "-m", "gpu_platform.cli", "api", "--config", "absent.yaml"]

    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert ended.returncode != 0
    assert "absent.yaml cannot be read" in ended.stderr
