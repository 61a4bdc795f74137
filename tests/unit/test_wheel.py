"""The wheel in an environment of its own, with the packages of the base installation and no others."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.architecture.repository import ROOT
from tests.unit.client.api_server import ApiServer, data, page, running_server
from tests.unit.client.views import unit

Ran = subprocess.CompletedProcess[str]

UNIT = unit()
BASE = re.findall(r"(?m)^[a-z].*?(?= \\$)", (ROOT / "requirements" / "base.txt").read_text())
"""`httpx==0.28.1`, some with a marker."""


@pytest.fixture(scope="module")
def bin_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without an index: the wheel is built here, and the pinned packages are those that are installed here."""
    directory = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)], cwd=ROOT, check=True
    )
    venv.create(directory / "venv", with_pip=False, symlinks=True)
    python = directory / "venv" / "bin" / "python"
    [wheel] = directory.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check")
    subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], check=True)
    packages = directory / "venv" / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    for requirement in map(Requirement, BASE):
        if requirement.marker is None or requirement.marker.evaluate():
            link_package(requirement, packages)
    return python.parent


def link_package(requirement: Requirement, packages: Path) -> None:
    installed = distribution(requirement.name)
    assert requirement.specifier.contains(installed.version)
    for top in {file.parts[0] for file in installed.files or () if file.parts[0] != ".."}:
        if top != "__pycache__":
            (packages / top).symlink_to(str(installed.locate_file(top)))


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with running_server() as server:
        yield server


def run(*command: str, url: str = "") -> Ran:
    """In a directory without the repository's packages."""
    environment = {**os.environ, "GPU_PLATFORM_KEY": "gk_aaaaaaaa_secret", "GPU_PLATFORM_URL": url}
    environment.pop("PYTHONPATH", None)
    return subprocess.run(command, cwd=ROOT / "docs", env=environment, capture_output=True, text=True, check=False)


def test_the_command_line_needs_the_base_alone(bin_directory: Path, api: ApiServer) -> None:
    api.on("GET", "/gpu-units", page([UNIT], None))

    shown = run(str(bin_directory / "gpu-platform"), "--help")
    listed = run(str(bin_directory / "gpu-platform"), "units", "list", url=api.url)

    assert (shown.returncode, shown.stderr) == (0, "")
    assert "units" in shown.stdout
    assert listed.returncode == 0, listed.stderr
    assert UNIT["name"] in listed.stdout


def test_the_sdk_needs_the_base_alone(bin_directory: Path, api: ApiServer) -> None:
    api.on("GET", f"/gpu-units/{UNIT['name']}", data(UNIT))
    program = f"from gpu_platform import Client\nprint(Client().units.get({UNIT['name']!r}).phase)"

    done = run(str(bin_directory / "python"), "-c", program, url=api.url)

    assert (done.returncode, done.stdout.strip()) == (0, UNIT["phase"]), done.stderr


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("api",), "server"),
        (("reconciler",), "server"),
        (("stack-worker",), "server"),
        (("restore", "--dry-run"), "server"),
        (("queue", "keys", "x"), "server"),
        (("worker", "m:f"), "server"),
        (("dev", "up"), "embedded"),
        (("tools",), "embedded"),
        (("bootstrap", "up"), "embedded"),
    ],
)
def test_a_command_that_needs_more_names_the_extra(bin_directory: Path, command: tuple[str, ...], extra: str) -> None:
    refused = run(str(bin_directory / "gpu-platform"), *command)

    assert refused.returncode == 2
    assert refused.stderr == f"error: this command needs the extra {extra}: pip install 'gpu-platform[{extra}]'\n"


def test_the_pulumi_resources_name_their_extra(bin_directory: Path) -> None:
    refused = run(str(bin_directory / "python"), "-c", "import gpu_platform.pulumi")

    assert refused.returncode == 1
    assert refused.stderr.strip().endswith(
        "ImportError: gpu_platform.pulumi needs the extra pulumi: pip install 'gpu-platform[pulumi]'"
    )
