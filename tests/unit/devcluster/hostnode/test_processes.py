"""Real processes, because their corner cases are the kernel's."""

import asyncio
import os
import signal
from dataclasses import dataclass, field

import pytest

from gpu_platform.devcluster.child_process import find_marked, kill_marked
from gpu_platform.devcluster.hostnode.processes import Child, Command
from tests.support.processes import is_running
from tests.support.waiting import eventually

MARK = "GPU_PLATFORM_TEST_MARK"


@dataclass
class Result:
    output: dict[str, bytes] = field(default_factory=lambda: {"stdout": b"", "stderr": b""})
    code: int | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def collect(self, stream: str, data: bytes) -> None:
        self.output[stream] += data

    def end(self, code: int) -> None:
        self.code = code
        self.ended.set()


def start(script: str, **environment: str) -> tuple[Child, Result]:
    result = Result()
    command = Command(("sh", "-c", script), {"PATH": os.environ["PATH"], **environment}, "/")
    return Child(command, result.collect, result.end), result


async def finish(script: str) -> Result:
    _, result = start(script)
    await asyncio.wait_for(result.ended.wait(), 10)
    return result


async def test_both_streams_and_the_exit_code_arrive() -> None:
    result = await finish("echo out; echo err >&2; exit 3")
    assert (result.output, result.code) == ({"stdout": b"out\n", "stderr": b"err\n"}, 3)


async def test_a_signal_becomes_its_exit_code() -> None:
    assert (await finish("kill -TERM $$")).code == 128 + signal.SIGTERM


async def test_much_output_arrives_whole() -> None:
    result = await finish("head -c 3000000 /dev/zero; head -c 60000 /dev/zero >&2")
    assert [len(result.output[stream]) for stream in ("stdout", "stderr")] == [3_000_000, 60_000]


async def test_a_process_may_close_its_output_and_go_on() -> None:
    child, result = start("exec >&- 2>&-; sleep 60")
    await asyncio.sleep(0.1)
    assert not result.ended.is_set()
    child.signal_group(signal.SIGTERM)
    await asyncio.wait_for(result.ended.wait(), 10)
    assert result.code == 128 + signal.SIGTERM


async def test_the_group_dies_with_its_leader() -> None:
    result = await finish("sleep 60 & echo $!")

    async def is_gone() -> bool:
        return not is_running(int(result.output["stdout"]))

    await eventually(is_gone)


async def test_a_survivor_that_keeps_the_pipe_open_holds_nobody_up() -> None:
    result = await finish(f"{MARK}=survivor setsid sleep 3600 & sleep 1; echo over")
    assert result.output["stdout"] == b"over\n"
    # It still runs.
    assert kill_marked(MARK, "survivor") == 1
    assert list(find_marked(MARK, "survivor")) == []


async def test_a_process_that_ignores_sigterm_is_killed() -> None:
    child, result = start("trap '' TERM; echo ready; while :; do sleep 0.1; done")

    async def ready() -> bool:
        return bool(result.output["stdout"])

    await eventually(ready)
    child.signal_group(signal.SIGTERM)
    await asyncio.sleep(0.2)
    assert not result.ended.is_set()
    child.signal_group(signal.SIGKILL)
    await asyncio.wait_for(result.ended.wait(), 10)
    assert result.code == 128 + signal.SIGKILL


async def test_a_child_that_is_gone_is_not_signalled() -> None:
    child, result = start("exit 0")
    await asyncio.wait_for(result.ended.wait(), 10)
    child.signal_group(signal.SIGKILL)


@pytest.mark.parametrize(
    "command",
    [
        Command(("no-such-command",), {"PATH": "/usr/bin"}, "/"),
        Command(("true",), {"PATH": "/usr/bin:/bin"}, "/no/such/directory"),
        Command(("true", "a\0b"), {"PATH": "/usr/bin:/bin"}, "/"),
    ],
    ids=["no such command", "no such directory", "a null byte"],
)
async def test_a_command_that_cannot_start_says_so(command: Command) -> None:
    result = Result()
    with pytest.raises((OSError, ValueError), match=r"no.such|null"):
        Child(command, result.collect, result.end)
