"""Where a stack's state lies, and what is kept of it."""

import gzip
import json
from pathlib import Path

import pytest

from gpu_platform.domain.stacks import StackAddress, StackKind
from stacks.runner.backend import KEPT_UPDATES, StackFiles, build_absolute_url, build_root_url, find_directory

ADDRESS = StackAddress(StackKind.GPU_UNIT, "acme", "one")


@pytest.fixture
def files(tmp_path: Path) -> StackFiles:
    return StackFiles(tmp_path, ADDRESS)


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        ("file:///var/state", "file:///var/state/fe?metadata=skip"),
        ("file:///var/state/", "file:///var/state/fe?metadata=skip"),
        ("file:///var/state?no_tmp_dir=false", "file:///var/state/fe?no_tmp_dir=false"),
        ("s3://bucket?region=eu-central-1", "s3://bucket/fe?region=eu-central-1"),
        ("gs://bucket/stacks", "gs://bucket/stacks/fe"),
    ],
)
def test_a_stack_has_one_of_256_roots_below_the_backend(backend: str, expected: str) -> None:
    assert build_root_url(backend, "acme.one") == expected


def test_only_a_file_backend_is_a_directory() -> None:
    assert find_directory("file:///var/state") == Path("/var/state")
    assert find_directory("file://~/state") == Path.home() / "state"
    assert find_directory("s3://bucket/state") is None


def test_a_directory_means_the_same_from_everywhere() -> None:
    assert build_absolute_url("file://state") == f"file://{Path.cwd()}/state"
    assert build_absolute_url("file:///var/state?x=y") == "file:///var/state?x=y"
    assert build_absolute_url("s3://bucket?region=x") == "s3://bucket?region=x"


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_state_is_read_plain_or_compressed(files: StackFiles, suffix: str) -> None:
    state = json.dumps({"checkpoint": {"latest": None}}).encode()
    path = files.root / ".pulumi" / "stacks" / "gpu-unit" / f"acme.one{suffix}"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(state) if suffix.endswith("gz") else state)

    assert files.read_state() == {"checkpoint": {"latest": None}}


def test_a_stack_without_state_is_not_there(files: StackFiles) -> None:
    assert files.find_state() is None
    assert files.read_state() is None


def test_the_newest_updates_of_a_history_stay(files: StackFiles) -> None:
    files.history.mkdir(parents=True)
    updates = range(1794823586351933236, 1794823586351933236 + KEPT_UPDATES + 3)
    for update in updates:
        for kind in ("history", "checkpoint"):
            for ending in ("", ".attrs"):
                (files.history / f"acme.one-{update}.{kind}.json.gz{ending}").touch()

    files.prune_history()

    kept = {int(path.name.split("-")[1].split(".")[0]) for path in files.history.iterdir()}
    assert kept == set(updates[-KEPT_UPDATES:])
    assert len(list(files.history.iterdir())) == 4 * KEPT_UPDATES


def test_what_a_removal_leaves_behind_goes_except_a_lock(files: StackFiles) -> None:
    states = files.root / ".pulumi" / "stacks" / "gpu-unit"
    for directory in (states, files.history, files.locks, files.pids):
        directory.mkdir(parents=True)
    copy, unfinished = states / "acme.one.json.gz.bak", states / "acme.one.json.gz.18a0.tmp"
    lock, neighbour = files.locks / "x.json", states / "acme.two.json.gz"
    for path in (copy, unfinished, lock, neighbour, files.pids / "here.7"):
        path.touch()

    files.remove_remains()

    assert not copy.exists()
    assert not unfinished.exists()
    assert not files.history.exists()
    assert not files.pids.exists()
    assert lock.exists(), "its holder may live"
    assert neighbour.exists()
    lock.unlink()
    files.remove_remains()
    assert not files.locks.exists()
