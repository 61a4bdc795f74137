"""What may be committed: nothing that ties us to one machine or package mirror, and nothing big."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT, list_files, list_files_by_walking, list_files_with_git

LARGEST_FILE_BYTES = 1_000_000

# These record the package host they were made with; requirements/*.txt hold the same pins without it.
LOCK_FILES = frozenset({"uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock"})

TRACES = {
    "a path of one machine": re.compile(r"(?<![\w.$}-])/(?:work|root|(?:home|Users)/[A-Za-z_][\w.-]*)/"),
    "an option that names a package index": re.compile(r"(?<![\w-])--(?:extra-)?index-url\b"),
    "a setting that names a package index": re.compile(
        r"(?im)^\s*(?:export\s+|env\s+)?(?:\w+_)?(?:extra[-_])?index[-_]url[\"']?\s*[=:]"
    ),
    "a package registry": re.compile(r"(?i)\b(?:registry|goproxy|find-links|index)[\"']?\s*[=: ]\s*[\"']?https?://"),
}


def find_traces(text: str) -> Iterator[str]:
    yield from (what for what, pattern in TRACES.items() if pattern.search(text))


def test_no_file_carries_a_trace_of_one_machine_or_mirror() -> None:
    found = {
        str(path): traces
        for path in list_files()
        if (traces := tuple(find_traces((ROOT / path).read_text(errors="replace"))))
    }

    assert found == {}


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        (("cd ", "/work", "/main"), "a path of one machine"),
        (('path = "', "/root", '/.cache"'), "a path of one machine"),
        (("see ", "/home", "/ada/project"), "a path of one machine"),
        (("see ", "/Users", "/ada/project"), "a path of one machine"),
        (("file://", "/work", "/state"), "a path of one machine"),
        (("pip install -", "-index-url", " $MIRROR"), "an option that names a package index"),
        (("pip install -", "-extra-index-url", " $MIRROR"), "an option that names a package index"),
        (("[global]\n", "index-url", " = $MIRROR"), "a setting that names a package index"),
        (("export ", "PIP_INDEX_URL", "=$MIRROR"), "a setting that names a package index"),
        (("registry", "=https://mirror.invalid"), "a package registry"),
        (("go env -w ", "GOPROXY", "=https://mirror.invalid"), "a package registry"),
        (("find-links", " = 'https://mirror.invalid'"), "a package registry"),
    ],
)
def test_a_trace_is_seen(parts: tuple[str, ...], what: str) -> None:
    # In parts, so that this file stays free of what it looks for.
    assert what in tuple(find_traces("".join(parts)))


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org/work/with/us",
        "$HOME/work/project",
        "the user's cache directory, ~/.cache/gpu-platform",
        "requirements files without an index-url",
        "uv pip compile --no-emit-index-url",
        "registry = CollectorRegistry()",
        "GOPROXY=off",
    ],
)
def test_what_looks_similar_is_fine(text: str) -> None:
    assert tuple(find_traces(text)) == ()


def test_no_lock_file_names_package_hosts() -> None:
    assert [str(path) for path in list_files() if path.name in LOCK_FILES] == []


def test_no_file_is_over_a_megabyte() -> None:
    assert [str(path) for path in list_files() if (ROOT / path).stat().st_size > LARGEST_FILE_BYTES] == []


def test_the_rules_look_at_all_kinds_of_files() -> None:
    assert {Path("pyproject.toml"), Path(".ci/run"), Path("tools/kwok/go.sum")} <= set(list_files())


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an unpacked source archive has no second list to compare")
def test_a_source_archive_is_held_to_the_same_rules() -> None:
    walked, listed = list_files_by_walking(ROOT), list_files_with_git(ROOT)

    assert [path for path in walked if path.suffix == ".py"] == [path for path in listed if path.suffix == ".py"]
