"""`gpu-platform reconciler` from the command line, without a cluster: how it refuses, waits and ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import NotYet, wait_until

COMMAND = (sys.executable, "-m", "gpu_platform.cli", "reconciler")
NOBODY = "http://127.0.0.1:9"
"""The discard port: nothing answers there."""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Of an API server that is away."""
    path = tmp_path / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "away", "cluster": {"server": NOBODY}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": "away", "context": {"cluster": "away", "user": "me"}}],
        "current-context": "away",
    }
    path.write_text(json.dumps(document))
    return path


def environment(**settings: str) -> dict[str, str]:
    """This process's, without a cluster, with these settings and with free ports."""
    clean = {name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST")}
    chosen = {"METRICS_ADDRESS": "127.0.0.1:0", "PROBE_ADDRESS": "127.0.0.1:0"} | settings
    return clean | {f"GPU_PLATFORM_RECONCILER_{name}": value for name, value in chosen.items()}


def refusal(*options: str, **settings: str) -> str:
    """What it says when it does not start: one sentence, exit code 2."""
    result = subprocess.run(
        [*COMMAND, *options], env=environment(**settings), capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 2, result.stderr
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


def test_a_bad_file_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("workers: none\n")

    said = refusal("--config", str(config))
    assert said == f'error: {config}: workers is "none", and should be a valid integer'


def test_a_bad_variable_is_refused() -> None:
    assert refusal(LOG_LEVEL="loud").startswith('error: GPU_PLATFORM_RECONCILER_LOG_LEVEL: logLevel is "loud", and ')


def test_without_a_cluster_it_says_how_to_name_one() -> None:
    assert "name a kubeconfig in `kubeconfig` or KUBECONFIG" in refusal()


def test_an_address_that_is_taken_is_refused(kubeconfig: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refusal(KUBECONFIG=str(kubeconfig), METRICS_ADDRESS=address)

    assert said == f"error: cannot listen on {address}: Address already in use; choose another metricsAddress"


@pytest.fixture
def waiting(kubeconfig: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """A reconciler that waits for its API server, and what it said when it started."""
    log = tmp_path / "log"
    with (
        log.open("wb") as stderr,
        subprocess.Popen(COMMAND, stderr=stderr, env=environment(KUBECONFIG=str(kubeconfig))) as process,
    ):
        try:
            yield process, _started(log)
        finally:
            process.kill()


def _started(log: Path) -> dict[str, Any]:
    def find_entry() -> dict[str, Any] | NotYet:
        text = log.read_text()
        entries = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return next((entry for entry in entries if entry["message"] == "reconciler.started"), NotYet(text))

    return wait_until(find_entry)


def test_while_the_api_server_is_away_it_lives_is_not_ready_and_ends_when_asked(
    waiting: tuple[subprocess.Popen[bytes], dict[str, Any]],
) -> None:
    process, started = waiting
    with urllib.request.urlopen(f"http://{started['probes']}/healthz") as answer:
        assert answer.read() == b"ok\n"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{started['probes']}/readyz")
    with refused.value as answer:
        assert answer.status == 503
        assert b"gpuunits: not listed yet\n" in answer.read()

    process.send_signal(signal.SIGTERM)

    assert process.wait(timeout=20) == 0
