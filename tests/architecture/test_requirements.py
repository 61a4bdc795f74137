"""Every installed package is pinned by version and hash, from whichever index the machine uses."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.repository import ROOT

REQUIREMENTS = ROOT / "requirements"
PIN = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[\w.!+]+)(?P<marker>\s*;.*?)?(?P<hashes>(\s+--hash=sha256:[0-9a-f]{64})+)"
)


def read_entries(text: str) -> Iterator[str]:
    """The logical lines: comments gone, continued lines joined."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = "\n".join(lines).replace("\\\n", " ")
    yield from (line.strip() for line in joined.splitlines() if line.strip())


def find_unpinned(text: str) -> tuple[str, ...]:
    return tuple(entry for entry in read_entries(text) if not PIN.fullmatch(entry))


def read_pins(path: Path) -> dict[str, str]:
    pins = (PIN.fullmatch(entry) for entry in read_entries(path.read_text()))
    return {canonicalize_name(pin["name"]): pin["version"] for pin in pins if pin}


def list_declared(text: str) -> tuple[Requirement, ...]:
    """What pyproject.toml asks for, extras included, the project itself left out."""
    project = tomllib.loads(text)["project"]
    extras = project.get("optional-dependencies", {}).values()
    declared = [Requirement(line) for group in (project["dependencies"], *extras) for line in group]
    return tuple(requirement for requirement in declared if requirement.name != project["name"])


def find_unmet(declared: tuple[Requirement, ...], pins: dict[str, str]) -> tuple[str, ...]:
    return tuple(
        str(requirement)
        for requirement in declared
        if not requirement.specifier.contains(pins.get(canonicalize_name(requirement.name), "none"))
    )


@pytest.mark.parametrize("name", ["base.txt", "runtime.txt", "dev.txt", "go.txt", "audit.txt"])
def test_every_requirement_is_pinned_by_version_and_hash(name: str) -> None:
    text = (REQUIREMENTS / name).read_text()

    assert find_unpinned(text) == ()
    assert read_pins(REQUIREMENTS / name) != {}


def test_no_other_requirements_file_escapes_the_rule() -> None:
    assert {path.name for path in REQUIREMENTS.glob("*.txt")} == {
        "base.txt",
        "runtime.txt",
        "dev.txt",
        "go.txt",
        "audit.txt",
    }


@pytest.mark.parametrize(
    "entry",
    [
        "rich==15.0.0",
        "rich>=15 --hash=sha256:" + "0" * 64,
        "rich==15.0.0 --hash=sha256:123",
        "rich @ https://mirror.invalid/rich.whl --hash=sha256:" + "0" * 64,
        "-i https://mirror.invalid/simple",
        "-r runtime.txt",
        "-e .",
    ],
)
def test_a_loose_entry_is_seen(entry: str) -> None:
    assert find_unpinned(entry) == (entry,)


def test_a_pinned_entry_over_several_lines_is_fine() -> None:
    digest = "0" * 64
    hashes = f"--hash=sha256:{digest} \\\n    --hash=sha256:{digest}"
    text = f'rich==15.0.0 ; python_version < "3.15" \\\n    {hashes}\n    # via typer\n'

    assert find_unpinned(text) == ()


def test_the_pins_meet_what_the_project_declares() -> None:
    pins = read_pins(REQUIREMENTS / "dev.txt") | read_pins(REQUIREMENTS / "runtime.txt")

    assert find_unmet(list_declared((ROOT / "pyproject.toml").read_text()), pins) == ()


@pytest.mark.parametrize("other", ["base.txt", "runtime.txt"])
def test_development_and_production_run_the_same_versions(other: str) -> None:
    pins, dev = read_pins(REQUIREMENTS / other), read_pins(REQUIREMENTS / "dev.txt")

    assert {name: (pins[name], dev[name]) for name in pins.keys() & dev.keys() if pins[name] != dev[name]} == {}


def test_the_base_installation_holds_no_process_of_the_platform() -> None:
    base = read_pins(REQUIREMENTS / "base.txt").keys()

    assert base.isdisjoint({"aiohttp", "cryptography", "fastapi", "kubernetes", "nats-py", "pulumi", "uvicorn"})
    assert base < read_pins(REQUIREMENTS / "runtime.txt").keys()


def test_a_missing_and_an_outdated_pin_are_seen() -> None:
    declared = list_declared(
        """
        [project]
        name = "gpu-platform"
        dependencies = ["rich>=14", "typer>=0.20"]
        optional-dependencies.dev = ["gpu-platform[embedded]", "types-PyYAML", "ruff>=0.14"]
        """
    )
    pins = {"rich": "13.0.0", "typer": "0.20.1", "types-pyyaml": "6.0.12.20261103"}

    assert find_unmet(declared, pins) == ("rich>=14", "ruff>=0.14")
