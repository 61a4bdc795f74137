"""`dev env` gives the stand-in plugin to those, and only to those, who have no official one."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_platform.devcluster.configuration import OFFICIAL_PLUGIN, STAND_IN, cluster_environment, shell_exports
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.record import PORT_NAMES, ClusterRecord


@pytest.fixture
def record() -> ClusterRecord:
    return replace(ClusterRecord.new(), ports={name: 20_000 + index for index, name in enumerate(PORT_NAMES)})


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDirectory:
    return ClusterDirectory(tmp_path / "cluster")


def install(directory: Path) -> Path:
    directory.mkdir(parents=True)
    program = directory / OFFICIAL_PLUGIN
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return directory


def entries(variables: dict[str, str]) -> list[str]:
    return variables["PATH"].split(os.pathsep)


def test_the_stand_in_is_a_program_that_can_be_started() -> None:
    assert os.access(STAND_IN / OFFICIAL_PLUGIN, os.X_OK)


def test_without_an_official_plugin_the_stand_in_is_on_the_path_and_one_line_says_so(
    directory: ClusterDirectory, record: ClusterRecord
) -> None:
    variables = cluster_environment(directory, record, "/usr/bin")
    remarks = [line for line in shell_exports(variables).splitlines() if not line.startswith("export ")]

    assert str(STAND_IN) in entries(variables)
    assert remarks == ["# Pulumi's kubernetes plugin is not installed: PATH has a stand-in for it, without Helm."]


def test_an_official_plugin_on_the_path_is_left_alone(
    directory: ClusterDirectory, record: ClusterRecord, tmp_path: Path
) -> None:
    official = install(tmp_path / "official")
    path = os.pathsep.join([str(STAND_IN), str(official), "/usr/bin"])
    variables = cluster_environment(directory, record, path)

    assert str(official) in entries(variables)
    assert str(STAND_IN) not in entries(variables)
    assert "#" not in shell_exports({"PATH": variables["PATH"]})


def test_an_official_plugin_that_pulumi_installed_is_left_alone(
    directory: ClusterDirectory, record: ClusterRecord
) -> None:
    install(directory.pulumi_home / "plugins" / "resource-kubernetes-v4.34.2")

    assert str(STAND_IN) not in entries(cluster_environment(directory, record, "/usr/bin"))


def test_half_an_installation_is_none(directory: ClusterDirectory, record: ClusterRecord) -> None:
    (directory.pulumi_home / "plugins" / "resource-kubernetes-v4.34.2").mkdir(parents=True)

    assert str(STAND_IN) in entries(cluster_environment(directory, record, "/usr/bin"))
