"""A module or file that a page or a docstring names in backticks exists."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.markdown import list_documents
from tests.architecture.repository import ROOT, list_files, list_python_files

PACKAGES = (
    "gpu_platform",
    "infra",
    "platform_api",
    "providers",
    "reconciler",
    "serverless",
    "stacks",
    "tests",
    "tools",
)
SUBPACKAGES = ("api_models", "cli", "client", "controller", "devcluster", "domain", "kube", "nats", "store")
"""Of gpu_platform, which texts leave out: `domain/units`."""

NAME = re.compile(rf"`((?:(?:{'|'.join(PACKAGES)})[./]|(?:{'|'.join(SUBPACKAGES)})/)\w+(?:[./]\w+)*\*?(?:\.\w+)?)/?`")
PLACES = ("", "gpu_platform", "tests/integration")
"""What a short name may begin below."""


@cache
def list_paths() -> frozenset[str]:
    files = list_files()
    return frozenset(path.as_posix() for file in files for path in (file, *file.parents))


def find_unknown_names(text: str) -> Iterator[str]:
    """The names of modules, and of what they hold, that nothing in the repository has."""
    for name in NAME.findall(text):
        if not any(leads_somewhere(name, place) for place in PLACES):
            yield name


def leads_somewhere(name: str, place: str) -> bool:
    if "*" in name:
        return any((ROOT / place).glob(name))
    if Path(place, name).as_posix() in list_paths():
        return True
    path = Path(place)
    parts = re.split(r"[./]", name.removesuffix(".py"))
    for index, part in enumerate(parts):
        path /= part
        module = path.with_suffix(".py")
        if module.as_posix() in list_paths():
            return index + 1 == len(parts) or mentions(module, parts[index + 1])
        if path.as_posix() not in list_paths():
            return index > 0 and mentions(path.parent / "__init__.py", part)
    return True


def mentions(module: Path, name: str) -> bool:
    file = ROOT / module
    return file.exists() and re.search(rf"\b{name}\b", file.read_text()) is not None


def test_every_module_that_a_text_names_exists() -> None:
    texts = (path for path in (*list_documents(), *list_python_files()) if path.name != "CHANGELOG.md")
    unknown = {str(path): names for path in texts if (names := [*find_unknown_names((ROOT / path).read_text())])}

    assert unknown == {}


@pytest.mark.parametrize(
    "name",
    [
        "domain/gone",
        "gpu_platform.domain.gone",
        "reconciler/gone.py",
        "gpu_platform.domain.units.Gone",
        "tests/unit/test_gone*.py",
    ],
)
def test_a_name_that_leads_nowhere_is_seen(name: str) -> None:
    assert list(find_unknown_names(f"See `{name}`.")) == [name]


@pytest.mark.parametrize(
    "name",
    ["domain/units", "gpu_platform.domain.units.UnitFields", "reconciler/units/plan.py", "stacks/", "infra/crds/"],
)
def test_a_name_that_leads_somewhere_is_fine(name: str) -> None:
    assert list(find_unknown_names(f"See `{name}`.")) == []
