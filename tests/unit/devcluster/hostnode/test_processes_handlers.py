import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gpu_platform.devcluster.hostnode.processes import (
    Command,
    HandlerResult,
    Probe,
    ProbeKind,
    Target,
    named_ports,
    run_handler,
    run_probe,
)
from tests.unit.devcluster.hostnode.builders import make_container

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
