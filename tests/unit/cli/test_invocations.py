"""Functions and calls on the command line."""

import json
import re
from pathlib import Path

import pytest

from gpu_platform.api_models.invocations import InvocationView
from gpu_platform.cli.invocations import build_remarks
from gpu_platform.domain.json_text import Json
from tests.unit.cli.shell import Shell, unwrapped
from tests.unit.client import views
from tests.unit.client.api_server import NO_CONTENT, Answer, ApiServer, data, page, refusal

FUNCTIONS = "/serverless/functions"
INVOCATIONS = "/serverless/invocations"
DEAD_LETTERS = "/serverless/dead-letters"
REDRIVEN = {"redriven": 2, "known": 3, "skipped": 1, "ids": ["inv-1", "inv-2"], "more": True}
QUEUED = views.call(state="queued", attempts=0, worker=None, result=None)
DEAD = views.call(state="dead_lettered", attempts=3, reason="AttemptsExhausted", result=None)


def test_a_function_is_created_from_its_options(api: ApiServer, shell: Shell) -> None:
    api.on("POST", FUNCTIONS, data(views.function(phase="Progressing", reason="WorkersStarting"), 201))

    result = shell.run(
        *("functions", "create", "words", "--spec", "host.1", "--image", "python:3.12", "--operation-id", "op-1"),
        *("--command", "python", "--arg=-m", "--arg=serverless.framework", "--env", "A=1", "--concurrency", "2"),
        *("--min-workers", "1", "--max-workers", "4", "--idle-timeout", "60", "--call-timeout", "10"),
    )

    assert (result.exit_code, result.stdout) == (0, "words: Progressing (WorkersStarting)\n")
    assert api.questions[0].body == {
        "operationID": "op-1",
        "name": "words",
        "specName": "host.1",
        "image": "python:3.12",
        "template": {
            "command": ["python"],
            "args": ["-m", "serverless.framework"],
            "envs": [{"name": "A", "value": "1"}],
        },
        "concurrency": 2,
        "minWorkers": 1,
        "maxWorkers": 4,
        "idleTimeoutSeconds": 60,
        "timeoutSeconds": 10,
    }


def test_creating_can_wait_for_the_workers(api: ApiServer, shell: Shell) -> None:
    api.on("POST", FUNCTIONS, data(views.function(phase="Progressing"), 201))
    api.on("GET", f"{FUNCTIONS}/words", data(views.function(phase="Progressing")), data(views.function()))

    result = shell.run("functions", "create", "words", "--spec", "host.1", "--image", "python:3.12", "--wait")

    assert result.exit_code == 0
    assert result.stdout.startswith("words is Ready after ")


def test_a_change_keeps_what_was_not_said_and_is_of_what_was_seen(api: ApiServer, shell: Shell) -> None:
    api.on("GET", f"{FUNCTIONS}/words", data(views.function(), ETag='"7"'))
    api.on("PUT", f"{FUNCTIONS}/words", data(views.function(minWorkers=0)))

    shell.run("functions", "update", "words", "--min-workers", "0", "--env", "A=1")

    [change] = api.asked("PUT", f"{FUNCTIONS}/words")
    assert change.headers["If-Match"] == '"7"'
    assert change.body == {
        "template": {**views.function()["template"], "envs": [{"name": "A", "value": "1"}]},
        "minWorkers": 0,
    }
    assert shell.run("functions", "update", "words").exit_code == 2


def test_functions_are_listed_shown_and_deleted(api: ApiServer, shell: Shell) -> None:
    api.on("GET", FUNCTIONS, page([views.function()], "more"), page([views.function("other")], None))
    api.on("GET", f"{FUNCTIONS}/words", data(views.function()))
    api.on("DELETE", f"{FUNCTIONS}/words", NO_CONTENT)

    assert [line.split()[:5] for line in shell.run("functions", "list").stdout.splitlines()[1:]] == [
        ["words", "host.1", "1", "1", "Ready"],
        ["other", "host.1", "1", "1", "Ready"],
    ]
    assert "1 of 1 ready, 1 to 4 wanted" in shell.run("functions", "get", "words").stdout
    assert shell.run("functions", "delete", "words").stdout == "words is being deleted\n"


def test_health_says_why_and_how_much_waits(api: ApiServer, shell: Shell) -> None:
    seen = {"state": "starting", "reason": "NoStock", "message": "no free stock of host.1"}
    api.on("GET", f"{FUNCTIONS}/words/health", data({**seen, "workers": 1, "readyWorkers": 0, "waiting": 7}))

    shown = shell.run("functions", "health", "words").stdout

    assert {"starting", "NoStock:", "7"} <= set(shown.split())


def test_purging_tells_how_many_calls_it_cancelled(api: ApiServer, shell: Shell) -> None:
    api.on("DELETE", f"{FUNCTIONS}/words/queue", data({"cancelled": 12}))

    assert shell.run("functions", "purge", "words").stdout == "12 waiting calls of words are cancelled\n"


def test_a_call_waits_and_prints_the_answer_alone(api: ApiServer, shell: Shell) -> None:
    api.on("POST", INVOCATIONS, data(views.call()))

    result = shell.run("invoke", "words", '{"text": "a b c"}', "--id", "one", "--header", "X-A=1", "--timeout", "5")

    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"words": 3}
    assert api.questions[0].body == {
        "serverlessRequestID": "words",
        "invocationID": "one",
        "mode": "sync",
        "payload": {"text": "a b c"},
        "headers": {"X-A": "1"},
        "timeoutSeconds": 5,
    }


def test_a_call_that_is_sent_again_is_the_same_call(api: ApiServer, shell: Shell) -> None:
    api.on("POST", INVOCATIONS, refusal(503, "service_unavailable", "busy", retry_after=0), data(views.call()))

    assert shell.run("invoke", "words").exit_code == 0

    first, second = (question.body["invocationID"] for question in api.questions)
    assert first == second
    assert re.fullmatch(r"inv-[0-9a-f]{32}", first)


def test_no_two_calls_are_the_same(api: ApiServer, shell: Shell) -> None:
    api.on("POST", INVOCATIONS, data(views.call()))

    shell.run("invoke", "words")
    shell.run("invoke", "words")

    assert len({question.body["invocationID"] for question in api.questions}) == 2


def test_a_call_whose_fate_is_unknown_tells_how_to_ask_again(api: ApiServer, shell: Shell) -> None:
    api.on("POST", INVOCATIONS, Answer(is_cut=True))

    result = shell.run("invoke", "words")

    assert result.exit_code == 1
    assert f"the same command with  --id {api.questions[0].body['invocationID']}" in result.stderr


def test_a_call_that_was_refused_is_not_asked_for_again(api: ApiServer, shell: Shell) -> None:
    api.on("POST", INVOCATIONS, refusal(404, "function_not_found", "there is no function 'words'"))

    assert "--id" not in shell.run("invoke", "words").stderr


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        ("NaN", "NaN is not a number that JSON knows"),
        ('{"a": [-Infinity]}', "-Infinity is not a number that JSON knows"),
        ("1e999", "1e999 is not a number that JSON knows"),
        (r'"\ud800"', "half a character"),
        (r'{"\udcff": 1}', "half a character"),
        ("[" * 201 + "]" * 201, "nested too deeply"),
        ('{"a":' * 5_000 + "1" + "}" * 5_000, "nested too deeply"),
    ],
)
def test_a_payload_that_cannot_be_sent_is_a_usage_error(api: ApiServer, shell: Shell, payload: str, says: str) -> None:
    for result in (shell.run("invoke", "words", payload), shell.run("worker", "app:words", "--call", payload)):
        assert result.exit_code == 2
        assert says in unwrapped(result.stderr)
    assert api.questions == []


def test_a_payload_may_be_as_deep_as_the_api_reads(api: ApiServer, shell: Shell) -> None:
    api.on("POST", INVOCATIONS, data(views.call()))

    assert shell.run("invoke", "words", "[" * 200 + "1" + "]" * 200).exit_code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("invoke", "words", "--header", "A=\udcff"),
        ("invoke", "words", "--id", "\udcff"),
        ("invocations", "get", "\udcff"),
        ("invocations", "list", "--function", "\udcff"),
        ("invocations", "watch", "--function", "\udcff"),
    ],
)
def test_words_that_are_not_utf_8_are_a_usage_error(api: ApiServer, shell: Shell, words: tuple[str, ...]) -> None:
    result = shell.run(*words)

    assert result.exit_code == 2
    assert "write it in UTF-8" in result.stderr
    assert api.questions == []


def test_a_trace_stands_beside_the_answer(api: ApiServer, shell: Shell) -> None:
    started = "2026-11-17T12:00:00.500Z"
    start = {"startedAt": started, "readyAt": "2026-11-17T12:00:01Z"}
    api.on("POST", INVOCATIONS, data(views.call(acceptedAt="2026-11-17T12:00:00Z", coldStart=start)))
    api.on("GET", f"{INVOCATIONS}/inv-1", data(views.call(acceptedAt="2026-11-17T12:00:00Z", coldStart=start)))

    result = shell.run("invoke", "words", "--trace")

    assert json.loads(result.stdout) == {"words": 3}
    assert ["worker", "started", "500", "ms"] in [line.split()[:4] for line in result.stderr.splitlines()]
    assert "worker ready" in shell.run("invocations", "get", "inv-1").stdout
    assert "worker ready" not in shell.run("invoke", "words").stderr


def test_a_payload_comes_from_a_file_or_from_a_pipe(api: ApiServer, shell: Shell, tmp_path: Path) -> None:
    api.on("POST", INVOCATIONS, data(views.call()))
    (tmp_path / "payload.json").write_text("[1]")

    shell.run("invoke", "words", f"@{tmp_path / 'payload.json'}")
    shell.run("invoke", "words", "-", stdin="[2]")

    assert [question.body["payload"] for question in api.questions] == [[1], [2]]
    assert shell.run("invoke", "words", "not json").exit_code == 2
    assert shell.run("invoke", "words", f"@{tmp_path / 'none'}").exit_code == 2


@pytest.mark.parametrize(
    ("words", "call", "code"),
    [
        (("invoke", "words"), QUEUED, 1),
        (("invoke", "words", "--async"), QUEUED, 0),
        (("invoke", "words"), DEAD, 1),
        (("invoke", "words"), views.call(state="failed", result={"statusCode": 500, "error": "boom"}), 1),
    ],
)
def test_only_an_answer_is_a_success(
    api: ApiServer, shell: Shell, words: tuple[str, ...], call: Json, code: int
) -> None:
    api.on("POST", INVOCATIONS, data(call, 202))

    assert shell.run(*words).exit_code == code


WAITS = {
    **QUEUED,
    "acceptedAt": "2026-11-17T12:00:00Z",
    "expiresAt": "2026-11-20T12:00:00Z",
    "functionState": {"phase": "Failed", "reason": "WorkerFailed", "message": "words-worker-0: no such image"},
}
LOOK = "`gpu-platform invocations get inv-1` shows its state"


def test_a_wait_that_ends_without_an_answer_says_how_the_function_is(api: ApiServer, shell: Shell) -> None:
    api.on("POST", INVOCATIONS, data(WAITS, 202))
    api.on("GET", f"{INVOCATIONS}/inv-1", data(WAITS))

    result = shell.run("invoke", "words")

    assert result.stdout == "inv-1 is queued\n"
    assert result.stderr.splitlines() == [
        "its function is words: Failed (WorkerFailed: words-worker-0: no such image)",
        f"it goes on, until 2026-11-20T12:00:00Z at the latest; {LOOK}",
    ]
    shown = dict(line.split(maxsplit=1) for line in shell.run("invocations", "get", "inv-1").stdout.splitlines())
    assert shown["function"].strip() == "words: Failed (WorkerFailed: words-worker-0: no such image)"
    assert shown["expires"].strip() == "2026-11-20T12:00:00Z"
    assert shell.run("invoke", "words", "--async").stderr == ""


@pytest.mark.parametrize(
    ("expires_at", "waited", "words"),
    [
        ("2026-11-17T12:00:03Z", 3.1, "its deadline of 3 s is over: unless an answer came in time, it ends as expired"),
        ("2026-11-17T12:00:03Z", 2.9, "it goes on, until 2026-11-17T12:00:03Z at the latest"),
    ],
)
def test_a_wait_that_ends_says_what_becomes_of_the_call(expires_at: str, waited: float, words: str) -> None:
    call = InvocationView.model_validate({**WAITS, "expiresAt": expires_at})

    assert build_remarks(call, waited)[-1] == f"{words}; {LOOK}"


def test_a_function_of_which_nothing_is_known_is_not_described() -> None:
    call = InvocationView.model_validate({**WAITS, "functionState": None})

    assert len(build_remarks(call, 30.0)) == 1


def test_calls_are_listed_shown_cancelled_deleted_and_tried_again(api: ApiServer, shell: Shell) -> None:
    api.on("GET", INVOCATIONS, data([views.call(), DEAD]))
    api.on("GET", f"{INVOCATIONS}/inv-1", data(views.call()))
    api.on("POST", f"{INVOCATIONS}/inv-1/cancel", data(views.call(state="cancelled")))
    api.on("DELETE", f"{INVOCATIONS}/inv-1", data(views.call(state="cancelled")))
    api.on("POST", f"{INVOCATIONS}/inv-1/retry", data({**QUEUED, "invocationID": "retry-1"}, 202))

    listed = shell.run("invocations", "list", "--function", "words", "--state", "succeeded", "--limit", "1").stdout
    assert [line.split()[:3] for line in listed.splitlines()[1:]] == [["inv-1", "words", "succeeded"]]
    assert api.questions[0].query == {"function": "words", "state": "succeeded"}
    assert '{"words": 3}' in shell.run("invocations", "get", "inv-1").stdout
    assert shell.run("invocations", "cancel", "inv-1").stdout == "inv-1 is cancelled\n"
    assert shell.run("invocations", "delete", "inv-1").stdout == "inv-1 is deleted\n"
    assert shell.run("invocations", "retry", "inv-1").stdout == "inv-1 is tried again as retry-1: queued\n"


def test_dead_letters_are_listed_and_tried_again(api: ApiServer, shell: Shell) -> None:
    api.on("GET", DEAD_LETTERS, data([DEAD]))
    api.on("POST", f"{DEAD_LETTERS}/redrive", data(REDRIVEN, 202))

    assert "AttemptsExhausted" in shell.run("dead-letters", "list").stdout
    assert shell.run("dead-letters", "redrive").exit_code == 2
    redriven = shell.run("dead-letters", "redrive", "--function", "words")
    assert redriven.stdout == "inv-1\ninv-2\n"
    assert redriven.stderr.splitlines() == [
        "dead letters tried again: 2, under these ids",
        "tried again before: 3",
        "skipped, because their function or payload is gone: 1",
        "there may be more; the same command tries them",
    ]
    assert api.questions[-1].body == {"function": "words"}


def test_the_logs_of_a_function_are_passed_through(api: ApiServer, shell: Shell) -> None:
    api.on("GET", f"{FUNCTIONS}/words/logs", Answer(body="words-worker-0 | line 1\n"))

    result = shell.run("functions", "logs", "words", "--tail", "2", "--timestamps", "--worker", "words-worker-0")

    assert result.stdout == "words-worker-0 | line 1\n"
    assert api.questions[0].query == {"tail": "2", "timestamps": "true", "worker": "words-worker-0"}
