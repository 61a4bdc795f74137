"""Modules are named after what they hold. Test files are named so that pytest finds them."""

import ast
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT, list_python_files

# Names that say nothing about the content, so that everything ends up there.
EMPTY_NAMES = frozenset(
    {"base", "common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"},
)


def has_an_empty_name(path: Path) -> bool:
    return not EMPTY_NAMES.isdisjoint(path.with_suffix("").parts)


def is_never_collected(path: Path, source: str) -> bool:
    """Whether the file defines tests that pytest will not find, because of the file's name."""
    names = [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return (
        path.is_relative_to("tests") and not path.name.startswith("test_") and any(n.startswith("test_") for n in names)
    )


def test_every_module_and_package_is_named_after_its_content() -> None:
    assert [str(path) for path in list_python_files() if has_an_empty_name(path)] == []


@pytest.mark.parametrize("name", ["utils.py", "helpers.py", "manager.py", "base.py", "common/names.py"])
def test_an_empty_name_is_seen(name: str) -> None:
    assert has_an_empty_name(Path("gpu_platform") / name)


@pytest.mark.parametrize("name", ["database.py", "base64_text.py", "stock/plan.py"])
def test_a_name_that_only_contains_an_empty_one_is_fine(name: str) -> None:
    assert not has_an_empty_name(Path("gpu_platform") / name)


def test_every_test_is_collected() -> None:
    hidden = [str(path) for path in list_python_files() if is_never_collected(path, (ROOT / path).read_text())]

    assert hidden == []


@pytest.mark.parametrize(
    ("path", "source", "hidden"),
    [
        ("tests/unit/names_test.py", "def test_a_name_is_short(): ...", True),
        ("tests/unit/names.py", "async def test_a_name_is_short(): ...", True),
        ("tests/unit/test_names.py", "def test_a_name_is_short(): ...", False),
        ("tests/conftest.py", "def cluster(): ...", False),
    ],
)
def test_a_test_outside_a_test_file_is_seen(path: str, source: str, hidden: bool) -> None:
    assert is_never_collected(Path(path), source) is hidden
