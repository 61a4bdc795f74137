"""A file of a lock directory is removed when its writer is provably gone, and never otherwise."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpu_platform.domain.stacks import StackAddress, StackKind
from stacks.runner import launch
from stacks.runner.backend import StackFiles
from stacks.runner.locks import (
    Lock,
    LockFile,
    RunningProcess,
    find_nameless,
    is_held,
    may_remove,
    observe_process,
    parse_lock,
    remove_dead_locks,
    remove_free_pid_files,
)

STACK = "acme.one"
NOW = datetime(2026, 11, 16, 10, 0, tzinfo=UTC)
LOCK = Lock(pid=4711, hostname="here", taken_at=NOW)
FOREIGN = Lock(pid=4711, hostname="elsewhere", taken_at=NOW)

HOLDER = RunningProcess(NOW - timedelta(seconds=1), ("pulumi", "up", "--stack", STACK))
SUCCESSOR = RunningProcess(NOW + timedelta(hours=1), ("pulumi", "up", "--stack", "acme.two"))
"""Another process that was given the same pid."""

AT_ONCE = RunningProcess(NOW + timedelta(seconds=1), ("sleep",))
"""As well, within the slack of the clocks: in a container that was restarted."""

SET_FORWARD = RunningProcess(NOW + timedelta(hours=1), ("pulumi", "up", "--stack", STACK))
HIDDEN = RunningProcess(NOW + timedelta(hours=1), None)


@pytest.mark.parametrize("is_temporary", [False, True], ids=["lock", "temporary"])
@pytest.mark.parametrize(
    ("lock", "held", "process", "lease_expired", "expected"),
    [
        pytest.param(LOCK, None, None, False, True, id="its process is gone"),
        pytest.param(LOCK, None, HOLDER, False, False, id="its process runs"),
        pytest.param(LOCK, None, HOLDER, True, False, id="its process runs, whatever the lease says"),
        pytest.param(LOCK, None, SUCCESSOR, False, True, id="its pid was given out again"),
        pytest.param(LOCK, None, SET_FORWARD, True, False, id="a clock set forward makes its process look younger"),
        pytest.param(LOCK, None, AT_ONCE, True, False, id="begun within the slack of the clocks"),
        pytest.param(LOCK, None, HIDDEN, False, False, id="a process that hides its arguments"),
        pytest.param(LOCK, True, HOLDER, True, False, id="its pid file is held"),
        pytest.param(LOCK, True, None, True, False, id="its pid file is held in another process table"),
        pytest.param(LOCK, False, AT_ONCE, False, True, id="its pid file is free and the pid another's at once"),
        pytest.param(LOCK, False, SET_FORWARD, False, True, id="its pid file is free and the next run has its pid"),
        pytest.param(LOCK, False, HIDDEN, False, True, id="its pid file is free, the process hides its arguments"),
        pytest.param(FOREIGN, None, None, False, False, id="another host, the lease runs"),
        pytest.param(FOREIGN, None, None, True, True, id="another host, the lease has expired"),
        pytest.param(FOREIGN, False, None, False, False, id="another host's pid file may look free from here"),
        pytest.param(FOREIGN, True, None, True, False, id="another host's pid file is held"),
    ],
)
def test_what_names_its_writer_is_removed_on_proof_only(
    lock: Lock,
    held: bool | None,
    process: RunningProcess | None,
    lease_expired: bool,
    expected: bool,
    is_temporary: bool,
) -> None:
    file = LockFile(lock, is_temporary, held, process)
    assert may_remove(file, STACK, "here", lease_expired=lease_expired) is expected


@pytest.mark.parametrize(
    ("is_temporary", "held", "lease_expired", "expected"),
    [
        pytest.param(True, False, False, True, id="temporary"),
        pytest.param(True, True, True, False, id="temporary, a process of the stack runs"),
        pytest.param(False, False, False, False, id="a lock, the lease runs"),
        pytest.param(False, False, True, True, id="a lock, the lease has expired"),
        pytest.param(False, True, True, False, id="a lock, a process of the stack runs"),
    ],
)
def test_what_names_no_writer_is_removed_while_no_process_of_the_stack_runs(
    is_temporary: bool, held: bool, lease_expired: bool, expected: bool
) -> None:
    file = LockFile(None, is_temporary, held, None)
    assert may_remove(file, STACK, "here", lease_expired=lease_expired) is expected


def test_a_lock_is_read_as_pulumi_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "lock.json"
    file.write_text(
        '{"pid":4711,"username":"root","hostname":"here","timestamp":"2026-11-16T11:00:00.123456789+01:00"}'
    )

    assert parse_lock(file) == Lock(4711, "here", NOW.replace(microsecond=123456))


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', '{"pid":1,"hostname":"x","timestamp":"today"}'])
def test_half_a_lock_names_no_holder(tmp_path: Path, content: str) -> None:
    file = tmp_path / "lock.json"
    file.write_text(content)

    assert parse_lock(file) is None


def test_a_running_process_is_seen_with_its_start_and_its_arguments() -> None:
    command = [sys.executable, "-c", "input('runs\\n')", STACK]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        # Before its program runs, the kernel may not show its arguments yet.
        assert process.stdout is not None
        process.stdout.readline()
        seen = observe_process(process.pid)
        process.communicate(b"\n")

    assert seen is not None
    assert seen.arguments is not None
    assert STACK in seen.arguments
    assert abs(datetime.now(UTC) - seen.started_at) < timedelta(minutes=1)


def test_a_process_that_ended_is_gone_even_before_it_is_collected() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    assert observe_process(process.pid) is None
    process.communicate()
    assert observe_process(process.pid) is None


@pytest.fixture
def files(tmp_path: Path) -> StackFiles:
    files = StackFiles(tmp_path, StackAddress(StackKind.GPU_UNIT, "acme", "one"))
    files.locks.mkdir(parents=True)
    return files


def write_lock(files: StackFiles, name: str, pid: int, hostname: str, taken_at: datetime = NOW) -> Path:
    file = files.locks / name
    file.write_text(json.dumps({"pid": pid, "hostname": hostname, "timestamp": taken_at.isoformat()}))
    return file


def find_free_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


@contextmanager
def launched(files: StackFiles) -> Iterator[int]:
    """The pid of a process that was launched as the CLI is, and waits."""
    program = [sys.executable, "-c", f"import os; print({launch.PID_FILES!r} in os.environ, flush=True); input()"]
    with subprocess.Popen(
        [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), *program],
        env={**os.environ, launch.PID_FILES: str(files.pids)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "False\n", "not passed on"
        yield process.pid
        process.kill()


def test_of_two_locks_only_the_dead_holders_goes(files: StackFiles) -> None:
    dead = write_lock(files, "dead.json", find_free_pid(), socket.gethostname())
    foreign = write_lock(files, "foreign.json", 1, "elsewhere")

    assert remove_dead_locks(files, lease_expired=False) is False
    assert not dead.exists()
    assert foreign.exists()
    assert remove_dead_locks(files, lease_expired=True) is True
    assert not foreign.exists()


@pytest.mark.parametrize("name", ["a.json.18a0.tmp", "a.json"])
def test_the_pid_file_of_a_launched_process_is_held_until_it_ends(files: StackFiles, name: str) -> None:
    with launched(files) as pid:
        [pid_file] = files.pids.iterdir()
        assert pid_file.name == f"{socket.gethostname()}.{pid}"
        # A timestamp long before the process began: by it alone the pid would be another's.
        lock = write_lock(files, name, pid, socket.gethostname())
        assert is_held(pid_file) is True
        assert remove_dead_locks(files, lease_expired=True) is False
        remove_free_pid_files(files)
        assert pid_file.exists()
    assert is_held(pid_file) is False
    remove_free_pid_files(files)
    assert pid_file.exists(), "it is the proof that the lock is dead"
    assert remove_dead_locks(files, lease_expired=False) is True
    assert not lock.exists()
    remove_free_pid_files(files)
    assert not pid_file.exists()


def test_a_pid_that_another_process_has_at_once_keeps_no_lock(files: StackFiles) -> None:
    with launched(files):
        [pid_file] = files.pids.iterdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = observe_process(process.pid)
        assert started is not None
        lock = write_lock(files, "a.json", process.pid, socket.gethostname(), started.started_at)
        assert remove_dead_locks(files, lease_expired=True) is False, "without its pid file nobody can tell"
        pid_file.rename(pid_file.with_name(f"{socket.gethostname()}.{process.pid}"))
        assert remove_dead_locks(files, lease_expired=False) is True
        assert not lock.exists()
        process.communicate(b"\n")


@pytest.mark.parametrize("content", ["", '{"pid": 4'])
def test_a_temporary_file_that_is_not_whole_goes_once_no_process_of_the_stack_runs(
    files: StackFiles, content: str
) -> None:
    leftover = files.locks / "6f1e.json.18a0.tmp"
    leftover.write_text(content)
    assert find_nameless(files.locks) == leftover
    with launched(files):
        assert remove_dead_locks(files, lease_expired=True) is False
    assert remove_dead_locks(files, lease_expired=False) is True
    assert find_nameless(files.locks) is None


def test_attributes_are_no_lock_and_go_with_theirs(files: StackFiles) -> None:
    lock = write_lock(files, "dead.json", find_free_pid(), socket.gethostname())
    attributes = lock.with_name("dead.json.attrs")
    attributes.touch()
    assert find_nameless(files.locks) is None
    assert remove_dead_locks(files, lease_expired=False) is True
    assert list(files.locks.iterdir()) == []


def test_where_there_is_no_lock_nothing_was_removed(files: StackFiles) -> None:
    assert remove_dead_locks(files, lease_expired=True) is False
    files.locks.rmdir()
    assert remove_dead_locks(files, lease_expired=True) is False
