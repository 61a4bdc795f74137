"""Functions that exit, and signals: what ends a call, and what ends the framework."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from serverless import handler
from serverless.framework.server import Calls
from tests.support.waiting import wait_until
from tests.unit.serverless.framework.function_client import Client, serving


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("exits", [SystemExit, KeyboardInterrupt, BaseException])
def test_a_function_that_exits_fails_its_own_call_and_no_other(
    path: Path, is_async: bool, exits: type[BaseException]
) -> None:
    @handler
    def plain(payload: str) -> str:
        if payload == "exit":
            raise exits(3)
        return payload

    @handler
    async def asynchronous(payload: str) -> str:
        return str(plain(payload))

    with serving(asynchronous if is_async else plain, path) as client:
        failed = client.invoke("exit")
        assert (failed["statusCode"], failed["error"]) == (500, f"{exits.__name__}: 3")
        assert client.invoke("next")["body"] == "next"
        assert client.ask("GET", "/healthz")[0] == 200


def test_what_a_function_left_running_may_exit_without_harm_to_others(path: Path) -> None:
    tasks: list[asyncio.Task[None]] = []

    async def leave() -> None:
        sys.exit(3)

    @handler
    async def begin(payload: str) -> str:
        tasks.append(asyncio.create_task(leave()))
        await asyncio.wait(tasks)
        return payload

    with serving(begin, path) as client:
        assert [client.invoke(payload)["body"] for payload in ("one", "two")] == ["one", "two"]
    assert [type(task.exception()) for task in tasks] == [SystemExit, SystemExit]


def test_it_is_not_ready_without_the_thread_of_its_async_calls() -> None:
    calls = Calls(handler(lambda payload: payload))
    calls.start()
    assert calls.is_ready
    calls.close()
    assert not calls.is_ready


def wait_until_ready(client: Client) -> None:
    def is_ready() -> bool:
        try:
            return client.ask("GET", "/healthz")[0] == 200
        except OSError:
            return False

    wait_until(is_ready)


TELLING = """\
import signal, threading
from serverless import handler

@handler
def tell(_):
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
"""


def test_it_ends_whichever_of_its_threads_the_signal_is_handed_to(tmp_path: Path, path: Path) -> None:
    """The kernel chooses; here the thread of a call does."""
    file = tmp_path / "telling.py"
    file.write_text(TELLING)
    command = (sys.executable, "-m", "serverless.framework", f"{file}:tell", "--socket", str(path))
    with subprocess.Popen(command) as process:
        try:
            wait_until_ready(Client(path))
            assert Client(path).invoke(None)["error"] is None
            assert process.wait(30) == 0
        finally:
            process.kill()
