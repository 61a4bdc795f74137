"""The command as a process: what it does to pipes, terminals, disks and Ctrl-C, and what it says of itself."""

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from gpu_platform.cli.app import app
from tests.architecture.repository import ROOT
from tests.support.waiting import wait_until
from tests.unit.cli.shell import KEY
from tests.unit.client import views
from tests.unit.client.api_server import Answer, ApiServer, data, page

COMMAND = (sys.executable, "-m", "gpu_platform.cli")
SECONDS = 180
FULL = Path("/dev/full")


def environment(api: ApiServer | None = None, **variables: str) -> dict[str, str]:
    reach = {"GPU_PLATFORM_URL": api.url, "GPU_PLATFORM_KEY": KEY} if api else {}
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **reach, **variables}


def run(*words: str, env: dict[str, str], **options: Any) -> subprocess.CompletedProcess[bytes]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run((*COMMAND, *words), env=env, timeout=SECONDS, check=False, **streams)


@contextmanager
def started(*words: str, env: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen((*COMMAND, *words), env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        with process:
            yield process
    finally:
        process.kill()


def interrupt(process: "subprocess.Popen[str]") -> tuple[str, str]:
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=SECONDS)


def test_the_version_is_that_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert CliRunner().invoke(app, ["--version"]).stdout == f"gpu-platform {version}\n"


@pytest.mark.parametrize("words", [(), ("units",), ("units", "create"), ("invoke",)])
def test_h_is_help_everywhere(words: tuple[str, ...]) -> None:
    short, long = (CliRunner().invoke(app, [*words, option]) for option in ("-h", "--help"))
    assert short.exit_code == 0
    assert "Usage: " in short.stdout
    assert short.stdout == long.stdout


def list_commands(command: Any, *words: str) -> Iterator[tuple[str, ...]]:
    yield words
    for name, child in getattr(command, "commands", {}).items():
        yield from list_commands(child, *words, name)


def test_every_command_explains_itself() -> None:
    for words in list_commands(typer.main.get_command(app)):
        result = CliRunner().invoke(app, [*words, "--help"])
        assert result.exit_code == 0, (words, result.exception)


def test_a_shell_completes_commands_and_options(tmp_path: Path) -> None:
    script = subprocess.run(
        ("bash", "-c", f"{sys.executable} -m gpu_platform.cli --show-completion; exit $?"),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    ).stdout
    (tmp_path / "gpu-platform").write_text(f'#!/bin/sh\nexec {sys.executable} -m gpu_platform.cli "$@"\n')
    (tmp_path / "gpu-platform").chmod(0o755)
    lines = [
        script,
        "complete -p gpu-platform >/dev/null",
        "COMP_WORDS=(gpu-platform units cre) COMP_CWORD=2",
        '_gpu_platform_completion gpu-platform; echo "${COMPREPLY[@]}"',
        "COMP_WORDS=(gpu-platform units create --readi) COMP_CWORD=3",
        '_gpu_platform_completion gpu-platform; echo "${COMPREPLY[@]}"',
    ]
    path = f"{tmp_path}:{os.environ['PATH']}"
    completed = subprocess.run(
        ("bash", "-euc", "\n".join(lines)),
        env=environment(PATH=path),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    assert completed.stdout.split() == ["create", "--readiness-probe"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_our_characters_gets_lookalikes(api: ApiServer, encoding: str) -> None:
    unit = views.unit(nodeName=None, phase="Failed", reason=None, message="grüße → 中")
    api.on("GET", "/gpu-units", page([unit], None))

    listed = run("units", "list", env=environment(api, PYTHONIOENCODING=encoding))

    assert (listed.returncode, listed.stderr) == (0, b"")
    _, row = listed.stdout.decode(encoding).splitlines()
    umlauts = "gr\\xfc\\xdfe" if encoding == "ascii" else "grüße"
    assert row.split() == ["demo", "host.1", "Failed", "-", "5h12m", umlauts, "->", "\\u4e2d"]


def test_json_is_whole_in_every_encoding(api: ApiServer) -> None:
    unit, env = views.unit(message="grüße → 中"), environment(api, PYTHONIOENCODING="ascii")
    api.on("GET", "/gpu-units/demo", data(unit))
    api.on("GET", "/gpu-units", Answer(body='event: added\ndata: {"name": "ü中"}\n\n', stays_open=True))

    shown = run("units", "get", "demo", "--json", env=env)
    with started("units", "watch", "--json", env=env) as watching:
        assert watching.stdout is not None
        line = watching.stdout.readline()
        interrupt(watching)

    assert json.loads(shown.stdout.decode("ascii")) == unit
    assert json.loads(line)["data"] == {"name": "ü中"}
    assert line.isascii()


@pytest.mark.parametrize("words", [("units", "create", "-h"), ("units", "create", "…", "--port", "→")])
def test_help_and_usage_errors_are_told_in_every_encoding(words: tuple[str, ...]) -> None:
    told = run(*words, env=environment(PYTHONIOENCODING="ascii"))
    assert b"Traceback" not in told.stderr
    assert told.returncode == (0 if "-h" in words else 2)


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("words", [("--help",), ("units", "list")])
def test_a_full_disk_is_one_line_and_a_failure(api: ApiServer, words: tuple[str, ...]) -> None:
    api.on("GET", "/gpu-units", page([views.unit()], None))
    with FULL.open("wb") as full:
        ended = run(*words, env=environment(api), stdout=full)
    assert (ended.returncode, ended.stderr.decode()) == (1, "error: cannot write: No space left on device\n")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
def test_an_error_that_cannot_be_told_is_a_failure_all_the_same() -> None:
    with FULL.open("wb") as full:
        assert run("units", "list", env=environment(), stdout=full, stderr=full).returncode == 1


def test_ctrl_c_while_modules_are_loaded_says_nothing(tmp_path: Path) -> None:
    """A module that the command imports is so slow that Ctrl-C comes in the middle of it."""
    (tmp_path / "httpx.py").write_text(
        f"import pathlib, time\npathlib.Path('{tmp_path}/begun').touch()\ntime.sleep(600)\n"
    )
    with started("units", "list", env=environment(PYTHONPATH=f"{tmp_path}:{ROOT}")) as process:
        wait_until((tmp_path / "begun").exists)
        assert interrupt(process) == ("", "")
        # As a shell has it: 130.
        assert process.returncode == -signal.SIGINT


def test_ctrl_c_in_a_wait_says_that_the_object_lives_on(api: ApiServer) -> None:
    api.on("POST", "/gpu-units", data(views.progressing(), 201))
    api.on("GET", "/gpu-units/demo", data(views.progressing()))
    words = ("units", "create", "demo", "--spec", "host.1", "--image", "python:3.12", "--wait")
    with started(*words, env=environment(api)) as process:
        wait_until(lambda: len(api.asked("GET", "/gpu-units/demo")) > 1)
        _, told = interrupt(process)
        assert process.returncode == 130
    assert told.splitlines()[-1] == (
        "stopped waiting; the unit demo lives on: `gpu-platform units get demo` shows it, "
        "`gpu-platform units delete demo` deletes it"
    )
    assert "Traceback" not in told


def test_ctrl_c_in_a_wait_for_a_deletion_says_that_it_goes_on(api: ApiServer) -> None:
    api.on("DELETE", "/gpu-storages/weights", Answer(204))
    api.on("GET", "/gpu-storages/weights", data(views.storage(phase="Terminating")))
    with started("storages", "delete", "weights", "--wait", env=environment(api)) as process:
        wait_until(lambda: len(api.asked("GET", "/gpu-storages/weights")) > 1)
        _, told = interrupt(process)
        assert process.returncode == 130
    assert "the deletion of weights goes on: `gpu-platform storages get weights` shows it" in told


def test_ctrl_c_before_the_answer_says_how_to_repeat_the_request(api: ApiServer) -> None:
    api.on("POST", "/serverless/invocations", Answer(body="", stays_open=True))
    with started("invoke", "words", "--id", "brave", env=environment(api)) as process:
        wait_until(lambda: api.asked("POST", "/serverless/invocations"))
        _, told = interrupt(process)
        assert process.returncode == 130
    assert "it may have been accepted all the same" in told
    assert "the same command with  --id brave" in told
