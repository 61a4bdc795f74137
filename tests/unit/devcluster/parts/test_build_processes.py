"""Whatever runs in a group ends with it, children of children included."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_platform.devcluster.parts.build import EndedError, ProcessGroup
from tests.support.processes import is_running
from tests.support.waiting import NotYet, wait_until

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
