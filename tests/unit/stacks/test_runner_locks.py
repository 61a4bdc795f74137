"""A lock is removed when its holder is provably gone, and never otherwise."""

import json
import os
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stacks.runner.locks import Lock, RunningProcess, may_remove, observe_process, parse_lock, remove_dead_locks

STACK = "acme.one"
NOW = datetime(2026, 11, 16, 10, 0, tzinfo=UTC)
LOCK = Lock(pid=4711, hostname="here", taken_at=NOW)

HOLDER = RunningProcess(NOW - timedelta(seconds=1), ("pulumi", "up", "--stack", STACK))
SUCCESSOR = RunningProcess(NOW + timedelta(hours=1), ("pulumi", "up", "--stack", "acme.two"))
"""Another process that was given the same pid."""


@pytest.mark.parametrize(
    ("lock", "process", "lease_expired", "expected"),
    [
        pytest.param(LOCK, None, False, True, id="its process is gone"),
        pytest.param(LOCK, HOLDER, False, False, id="its process runs"),
        pytest.param(LOCK, HOLDER, True, False, id="its process runs, whatever the lease says"),
        pytest.param(LOCK, SUCCESSOR, False, True, id="its pid was given out again"),
        pytest.param(
            LOCK,
            RunningProcess(NOW + timedelta(hours=1), ("pulumi", "up", "--stack", STACK)),
            True,
            False,
            id="a clock that was set forward makes the holder look younger than its lock",
        ),
        pytest.param(
            LOCK,
            RunningProcess(NOW + timedelta(seconds=1), ("sleep",)),
            False,
            False,
            id="begun within the slack of the clocks",
        ),
        pytest.param(
            LOCK, RunningProcess(NOW + timedelta(hours=1), None), False, False, id="a process that hides its arguments"
        ),
        pytest.param(Lock(4711, "elsewhere", NOW), None, False, False, id="another host, the lease runs"),
        pytest.param(Lock(4711, "elsewhere", NOW), None, True, True, id="another host, the lease has expired"),
        pytest.param(None, None, False, False, id="unreadable, the lease runs"),
        pytest.param(None, None, True, True, id="unreadable, the lease has expired"),
    ],
)
def test_a_lock_is_removed_on_proof_only(
    lock: Lock | None, process: RunningProcess | None, lease_expired: bool, expected: bool
) -> None:
    assert may_remove(lock, STACK, "here", process, lease_expired=lease_expired) is expected


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
    with subprocess.Popen([sys.executable, "-c", "input()", STACK], stdin=subprocess.PIPE) as process:
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


def write_lock(directory: Path, name: str, pid: int, hostname: str) -> Path:
    file = directory / f"{name}.json"
    file.write_text(json.dumps({"pid": pid, "hostname": hostname, "timestamp": NOW.isoformat()}))
    return file


def find_free_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def test_of_two_locks_only_the_dead_holders_goes(tmp_path: Path) -> None:
    dead = write_lock(tmp_path, "dead", find_free_pid(), socket.gethostname())
    foreign = write_lock(tmp_path, "foreign", 1, "elsewhere")

    assert remove_dead_locks(tmp_path, STACK, lease_expired=False) is False
    assert not dead.exists()
    assert foreign.exists()
    assert remove_dead_locks(tmp_path, STACK, lease_expired=True) is True
    assert not foreign.exists()


def test_where_there_is_no_lock_nothing_was_removed(tmp_path: Path) -> None:
    assert remove_dead_locks(tmp_path / "none", STACK, lease_expired=True) is False
