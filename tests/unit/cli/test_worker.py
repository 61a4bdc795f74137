"""`gpu-platform worker`: a handler on this machine, and whose invocations it takes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_platform.api_models.functions import FunctionView
from gpu_platform.cli.worker import build_function_name, build_limits
from tests.architecture.repository import ROOT
from tests.unit.cli.shell import Shell
from tests.unit.client import views
from tests.unit.client.api_server import ApiServer, refusal

HANDLER = """
from serverless import handler
from serverless.framework.calls import Answer

@handler
def greet(payload):
    if payload.get("refuse"):
        return Answer({"text": f"no, {payload['name']}"}, 404)
    return {"text": f"hi {payload['name']}"}
"""


def run(place: str, call: str, directory: Path) -> subprocess.CompletedProcess[str]:
    program = "from gpu_platform.cli.__main__ import main; main()"
    command = [sys.executable, "-c", program, "worker", place, "--call", call]
    return subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=60, check=False, env={"PYTHONPATH": str(ROOT)}
    )


def test_the_answer_is_printed(tmp_path: Path) -> None:
    (tmp_path / "greeting.py").write_text(HANDLER)
    for place in ("greeting:greet", "greeting.py:greet"):
        done = run(place, '{"name": "Ada"}', tmp_path)
        assert (done.returncode, json.loads(done.stdout)) == (0, {"text": "hi Ada"}), done.stderr


def test_a_failure_of_the_handler_is_a_sentence_and_an_exit_code(tmp_path: Path) -> None:
    (tmp_path / "greeting.py").write_text(HANDLER)
    broken = run("greeting:greet", "{}", tmp_path)
    assert broken.returncode == 1
    assert "the handler failed with status 500: KeyError: 'name'" in broken.stderr
    refused = run("greeting:greet", '{"name": "Ada", "refuse": true}', tmp_path)
    assert (refused.returncode, json.loads(refused.stdout)) == (1, {"text": "no, Ada"})
    assert "answered with status 404" in refused.stderr


def test_a_handler_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    missing = run("nothing:greet", "{}", tmp_path)
    assert missing.returncode == 1
    assert "nothing cannot be imported" in missing.stderr


def test_a_payload_that_is_no_json_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    wrong = run("nothing:greet", "{", tmp_path)
    assert wrong.returncode == 2
    assert "is not JSON" in wrong.stderr


@pytest.mark.parametrize(
    ("place", "function"),
    [
        ("examples/functions/words.py:count", "words"),
        ("words.py:count", "words"),
        ("package.word_count:handle", "word-count"),
        ("words:count", "words"),
        ("words", "words"),
    ],
)
def test_a_function_is_named_as_its_file_or_module(place: str, function: str) -> None:
    assert build_function_name(place) == function


def test_a_worker_goes_by_the_function_as_it_is_declared() -> None:
    declared = FunctionView.model_validate(views.function(namespace="runtime-instance", maxAttempts=1, concurrency=4))
    limits = {"TENANT": "default", "CONCURRENCY": "4", "MAX_ATTEMPTS": "1", "ACK_WAIT_SECONDS": "30"}
    assert build_limits(declared, None, None) == limits
    assert build_limits(declared, None, 2) == {**limits, "CONCURRENCY": "2"}
    assert build_limits(None, "acme", 2) == {"TENANT": "acme", "CONCURRENCY": "2"}
    assert build_limits(None, None, None) == {}


def test_a_function_that_is_not_there_is_named_before_anything_is_started(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/serverless/functions/words", refusal(404, "function_not_found", "there is no function 'words'"))

    result = shell.run("worker", "nothing/words.py:count")

    assert result.exit_code == 1
    assert "there is no function 'words'" in result.stderr
    assert "or name another with --function" in result.stderr
