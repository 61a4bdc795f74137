"""An entry of the cache is there as a whole or not at all."""

import fcntl
from pathlib import Path

import pytest

from gpu_platform.devcluster.parts.build import Store, choose_cache_root


class Filler:
    """Writes one program, and remembers how often it was asked to."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, target: Path) -> None:
        self.calls += 1
        program = target / "program"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)


def fail_halfway(target: Path) -> None:
    (target / "program").write_text("half of it")
    raise OSError("interrupted")


def never_wait(seconds: float) -> None:
    raise AssertionError(f"waited {seconds} s")


def ensure(store: Store, fill: Filler) -> bool:
    return store.ensure("entry-1", ["program"], fill, pause=never_wait, on_wait=lambda: None)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "cache")
    store.create()
    return store


def test_an_entry_is_filled_once(store: Store) -> None:
    fill = Filler()

    assert [ensure(store, fill), ensure(store, fill)] == [True, False]
    assert fill.calls == 1
    assert store.find("entry-1", ["program"]) == store.root / "entry-1"


def test_a_failed_fill_leaves_nothing_and_the_next_one_succeeds(store: Store) -> None:
    with pytest.raises(OSError, match="interrupted"):
        store.ensure("entry-1", ["program"], fail_halfway, pause=never_wait, on_wait=lambda: None)

    assert store.find("entry-1", ["program"]) is None
    assert [path.name for path in store.root.iterdir() if path.is_dir()] == []
    assert ensure(store, Filler())


def test_leftovers_of_dead_runs_are_removed_but_not_those_of_other_entries(store: Store) -> None:
    dead, other = store.root / "entry-1.dead.tmp", store.root / "entry-2.live.tmp"
    for folder in (dead, other):
        (folder / "go-work").mkdir(parents=True)

    ensure(store, Filler())

    assert not dead.exists()
    assert other.exists()


def test_an_entry_that_lost_a_file_is_filled_again(store: Store) -> None:
    fill = Filler()
    ensure(store, fill)
    (store.root / "entry-1" / "program").unlink()

    assert ensure(store, fill)
    assert store.find("entry-1", ["program"])


def test_an_entry_that_another_run_fills_is_waited_for(store: Store) -> None:
    fill = Filler()
    waits = []

    with (store.root / "entry-1.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        def let_the_other_run_finish(_seconds: float) -> None:
            (store.root / "entry-1").mkdir()
            fill(store.root / "entry-1")
            fcntl.flock(held, fcntl.LOCK_UN)

        filled = store.ensure(
            "entry-1", ["program"], fill, pause=let_the_other_run_finish, on_wait=lambda: waits.append("waiting")
        )

    assert not filled
    assert fill.calls == 1
    assert waits == ["waiting"]


@pytest.mark.parametrize(
    ("environment", "root"),
    [
        ({}, "/anywhere/me/.cache/gpu-platform/tools"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/gpu-platform/tools"),
        ({"XDG_CACHE_HOME": "relative"}, "/anywhere/me/.cache/gpu-platform/tools"),
        ({"XDG_CACHE_HOME": "/xdg", "GPU_PLATFORM_CACHE_DIR": "/chosen"}, "/chosen/tools"),
    ],
)
def test_the_cache_lies_where_the_user_says(environment: dict[str, str], root: str) -> None:
    assert choose_cache_root(environment, Path("/anywhere/me")) == Path(root)
