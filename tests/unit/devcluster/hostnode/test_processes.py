"""Real processes, because their corner cases are the kernel's; handlers and probes of containers."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gpu_platform.devcluster.child_process import find_marked, kill_marked
from gpu_platform.devcluster.hostnode.processes import (
    Child,
    Command,
    HandlerResult,
    Probe,
    ProbeCount,
    ProbeKind,
    Target,
    find_probes,
    named_ports,
    run_handler,
    run_probe,
)
from tests.support.processes import is_running
from tests.support.waiting import eventually
from tests.unit.devcluster.hostnode.builders import make_container

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


ADDRESS = "127.0.0.1"


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async def answer(request: web.Request) -> web.Response:
        status = int(request.match_info["status"])
        return web.Response(status=status, text=request.headers.get("X-Who", ""), headers={"Location": "/500"})

    app = web.Application()
    app.add_routes([web.get("/{status}", answer)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, ADDRESS, 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


async def ask(handler: dict[str, Any], ports: dict[str, int] | None = None, timeout: float = 5) -> HandlerResult:
    def build(argv: list[str]) -> Command:
        return Command(tuple(argv), {"PATH": os.environ["PATH"]}, "/")

    async with aiohttp.ClientSession() as session:
        return await run_handler(handler, Target(ADDRESS, ports or {}, build), session, timeout)


@pytest.mark.parametrize(("status", "want"), [(200, True), (302, True), (404, False), (503, False)])
async def test_http_succeeds_below_400(port: int, status: int, want: bool) -> None:
    assert (await ask({"httpGet": {"path": f"/{status}", "port": port}})).succeeded is want


async def test_http_takes_named_ports_and_headers(port: int) -> None:
    headers = [{"name": "X-Who", "value": "probe"}]
    outcome = await ask({"httpGet": {"path": "500", "port": "web", "httpHeaders": headers}}, {"web": port})
    assert outcome == HandlerResult(False, "HTTP status 500: probe")


async def test_a_port_that_has_no_such_name_fails() -> None:
    outcome = await ask({"httpGet": {"port": "web"}})
    assert outcome == HandlerResult(False, "ValueError: the container has no port named 'web'")


async def test_tcp_succeeds_when_somebody_listens(port: int) -> None:
    assert (await ask({"tcpSocket": {"port": port}})).succeeded
    assert (await ask({"tcpSocket": {"port": "web"}}, {"web": port})).succeeded
    assert not (await ask({"tcpSocket": {"port": 1}})).succeeded


@pytest.mark.parametrize("handler", ["httpGet", "tcpSocket"])
@pytest.mark.parametrize("host", ["10.128.0.7", "192.0.2.1", "example.com"])
async def test_no_probe_dials_beyond_loopback(handler: str, host: str) -> None:
    outcome = await ask({handler: {"host": host, "port": 80}})
    assert outcome == HandlerResult(False, f"ValueError: host {host!r}: the host node dials loopback addresses only")


async def test_a_probe_may_name_this_machine(port: int) -> None:
    assert (await ask({"tcpSocket": {"host": "localhost", "port": port}})).succeeded


async def test_exec_succeeds_with_exit_code_zero() -> None:
    assert (await ask({"exec": {"command": ["true"]}})).succeeded
    outcome = await ask({"exec": {"command": ["sh", "-c", "echo not yet; exit 2"]}})
    assert outcome == HandlerResult(False, "exit code 2: not yet")
    assert not (await ask({"exec": {"command": ["no-such-command"]}})).succeeded


async def test_an_answer_that_takes_too_long_is_a_failure() -> None:
    outcome = await ask({"exec": {"command": ["sleep", "60"]}}, timeout=0.1)
    assert outcome == HandlerResult(False, "no answer within 0.1 s")


async def test_what_is_not_known_fails_with_a_sentence() -> None:
    assert not (await ask({"grpc": {"port": 1}})).succeeded


def test_only_named_ports_have_names() -> None:
    container = make_container(ports=[{"name": "web", "containerPort": 80}, {"containerPort": 81}])
    assert named_ports(container) == {"web": 80}


async def test_a_startup_probe_ends_with_its_verdict() -> None:
    answers = iter([False, False, True])
    seen: list[bool | None] = []

    async def check() -> HandlerResult:
        return HandlerResult(next(answers))

    spec = {"periodSeconds": 0.001, "failureThreshold": 3}
    probe = Probe.parse(ProbeKind.STARTUP, spec)
    await asyncio.wait_for(run_probe(probe, check, lambda _, __, verdict: seen.append(verdict)), 5)
    assert seen == [None, None, True]


def verdicts(results: str, successes: int, failures: int) -> list[bool | None]:
    """The verdict after each result; `+` is a success, `-` a failure."""
    spec = {"successThreshold": successes, "failureThreshold": failures}
    probe, count, seen = Probe.parse(ProbeKind.READINESS, spec), ProbeCount(), []
    for result in results:
        count = count.after(result == "+", probe)
        seen.append(count.verdict)
    return seen


@pytest.mark.parametrize(
    ("results", "successes", "failures", "want"),
    [
        ("+", 1, 3, [True]),
        ("--", 1, 3, [None, None]),
        ("---", 1, 3, [None, None, False]),
        ("--+--", 1, 3, [None, None, True, True, True]),
        ("+---+", 1, 3, [True, True, True, False, True]),
        ("+-+", 2, 1, [None, False, False]),
        ("-++", 2, 1, [False, False, True]),
    ],
)
def test_a_verdict_needs_its_threshold_in_a_row(
    results: str, successes: int, failures: int, want: list[bool | None]
) -> None:
    assert verdicts(results, successes, failures) == want


def test_the_numbers_have_the_defaults_of_the_api() -> None:
    probe = Probe.parse(ProbeKind.LIVENESS, {"exec": {"command": ["x"]}})
    assert (probe.initial_delay_seconds, probe.period_seconds, probe.timeout_seconds) == (0, 10, 1)
    assert (probe.success_threshold, probe.failure_threshold) == (1, 3)


def test_the_startup_probe_comes_alone_and_first() -> None:
    container = make_container(
        startupProbe={"periodSeconds": 1}, readinessProbe={"exec": {}}, livenessProbe={"exec": {}}
    )
    assert [probe.kind for probe in find_probes(container, started=False)] == [ProbeKind.STARTUP]
    assert [probe.kind for probe in find_probes(container, started=True)] == [
        ProbeKind.READINESS,
        ProbeKind.LIVENESS,
    ]
    assert find_probes(make_container(), started=True) == ()
