"""What the agent refuses before it touches anything."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_platform.devcluster import DevClusterError
from gpu_platform.devcluster.hostnode.__main__ import check_is_local


@pytest.mark.parametrize("server", ["https://127.0.0.1:6443", "https://localhost:6443", "https://[::1]:6443"])
def test_an_api_server_on_this_machine_is_served(server: str) -> None:
    check_is_local(server)


@pytest.mark.parametrize(
    "server", ["https://10.0.0.1:6443", "https://kube.example.com", "https://127.0.0.1.example.com", ""]
)
def test_any_other_api_server_is_refused(server: str) -> None:
    with pytest.raises(DevClusterError, match="development only"):
        check_is_local(server)


def run_agent(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://kube.example.com"}}],
        "users": [{"name": "c", "user": {}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
    paths = ("kubeconfig", "root", "tls-cert", "tls-key", "client-ca", "admin-kubeconfig", "volumes")
    options = [f"--{name}={tmp_path / name}" for name in paths]
    return subprocess.run(
        [sys.executable, "-m", "gpu_platform.devcluster.hostnode", *options],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_the_command_ends_with_one_sentence_and_code_2(tmp_path: Path) -> None:
    result = run_agent(tmp_path, GPU_PLATFORM_DEV_CLUSTER="test")
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        "error: the host node is for development only and serves an API server on this machine, not "
        "https://kube.example.com: give it the kubeconfig of an embedded cluster"
    ]
    assert not (tmp_path / "root").exists()


def test_the_cluster_must_have_a_name(tmp_path: Path) -> None:
    result = run_agent(tmp_path)
    assert result.returncode == 2
    assert "GPU_PLATFORM_DEV_CLUSTER" in result.stderr
