"""The import contracts of `.importlinter` cover every package that we ship, and every package has its layer."""

import configparser
import tomllib

from tests.architecture.repository import ROOT


def read_contracts() -> configparser.ConfigParser:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    return contracts


def test_the_contracts_cover_every_package_that_we_ship() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    assert sorted(read_contracts()["importlinter"]["root_packages"].split()) == sorted(shipped)


def test_every_package_of_gpu_platform_has_its_layer() -> None:
    packages = {f"gpu_platform.{path.parent.name}" for path in (ROOT / "gpu_platform").glob("*/__init__.py")}
    layers = read_contracts()["importlinter:contract:layers"]["layers"].replace("|", " ").split()

    assert packages <= set(layers)
