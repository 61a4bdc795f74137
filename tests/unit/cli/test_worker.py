"""`gpu-platform worker --call`: a handler, run once on this machine."""

import json
import subprocess
import sys
from pathlib import Path

from tests.architecture.repository import ROOT

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
