"""What the commands ask for."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.shell import Shell, unwrapped
from tests.unit.client import views
from tests.unit.client.api_server import NO_CONTENT, ApiServer, data, refusal

CREATE = ("units", "create", "demo", "--spec", "host.1", "--image", "python:3.12")


def test_a_unit_is_created_from_its_options(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/gpu-units", data(views.progressing(phase="Pending", reason=None, message=None), 201))

    result = shell.run(
        *CREATE,
        *("--command", "python", "--arg=-m", "--arg=http.server", "--arg=8080"),
        *("--port", "http=8080", "--port", "dns=53/udp", "--env", "A=1=2", "--env", "EMPTY="),
        *("--primary-port", "http", "--scheme", "https", "--stock", "host-0", "--operation-id", "op-1"),
    )

    assert (result.exit_code, result.stdout) == (0, "demo: Pending\n")
    assert api.questions[0].body == {
        "operationID": "op-1",
        "name": "demo",
        "specName": "host.1",
        "image": "python:3.12",
        "stockName": "host-0",
        "template": {
            "command": ["python"],
            "args": ["-m", "http.server", "8080"],
            "envs": [{"name": "A", "value": "1=2"}, {"name": "EMPTY", "value": ""}],
            "ports": [{"name": "http", "port": 8080}, {"name": "dns", "port": 53, "protocol": "UDP"}],
        },
        "access": {"primaryPort": "http", "scheme": "https"},
    }


@pytest.mark.parametrize(("option", "public"), [("--public", True), ("--private", False)])
def test_a_unit_becomes_public_or_private_and_keeps_its_port(
    api: ApiServer, shell: Shell, option: str, public: bool
) -> None:
    api.on("GET", "/gpu-units/demo", data(views.unit()))
    api.on("PUT", "/gpu-units/demo", data(views.unit()))

    shell.run("units", "update", "demo", option)

    assert api.questions[-1].body == {"access": {"primaryPort": "http", "scheme": "http", "public": public}}


def test_an_operation_id_is_new_for_every_wish(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/gpu-units", data(views.unit(), 201))

    shell.run(*CREATE)
    shell.run(*CREATE)

    first, second = (question.body["operationID"] for question in api.questions)
    assert first.startswith("cli-")
    assert first != second


def test_a_replay_is_told(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/gpu-units", data(views.unit(), 200))

    assert "was accepted before" in shell.run(*CREATE, "--operation-id", "op-1").stdout


def test_a_file_holds_the_request_and_options_win(api: ApiServer, shell: Shell, tmp_path: Path) -> None:
    api.on("POST", "/gpu-units", data(views.unit(), 201))
    content = {
        "operationID": "from-file",
        "specName": "t4.1",
        "image": "old",
        "template": {"args": ["a"], "probes": {"liveness": {"command": ["true"]}}},
    }
    file = tmp_path / "unit.json"
    file.write_text(json.dumps(content))

    from_file = shell.run("units", "create", "demo", "--file", str(file), "--image", "new", "--arg", "b")
    from_stdin = shell.run("units", "create", "demo", "--file", "-", stdin=json.dumps(content))

    assert (from_file.exit_code, from_stdin.exit_code) == (0, 0)
    assert [question.body for question in api.questions] == [
        {
            "operationID": "from-file",
            "name": "demo",
            "specName": "t4.1",
            "image": "new",
            "template": {"args": ["b"], "probes": {"liveness": {"command": ["true"]}}},
        },
        {**content, "name": "demo"},
    ]


@pytest.mark.parametrize(
    ("options", "stdin", "says"),
    [
        (["--image", "x"], None, "--spec"),
        (["--spec", "x"], None, "--image"),
        (["--spec", "x", "--image", "x", "--port", "8080"], None, "http=8080"),
        (["--spec", "x", "--image", "x", "--port", "http=99999"], None, "port 99999 is out of range; use 1 to 65535"),
        (["--spec", "x", "--image", "x", "--port", "http=0"], None, "port 0 is out of range; use 1 to 65535"),
        (["--spec", "x", "--image", "x", "--port", "http=" + 5_000 * "9"], None, "is out of range; use 1 to 65535"),
        (["--spec", "x", "--image", "x", "--port", "http=1/ICMP"], None, "'ICMP' is not one of TCP, UDP, SCTP"),
        (["--spec", "x", "--image", "x", "--env", "A"], None, "NAME=VALUE"),
        (["--spec", "x", "--image", "x", "--scheme", "gopher"], None, "--scheme"),
        (["--file", "-"], "{", "is not JSON"),
        (["--file", "-"], "[]", "one JSON object"),
        (["--file", "-"], '{"gpu": NaN}', "NaN is not a number that JSON knows"),
        (["--file", "-"], r'{"image": "\ud800"}', "half a character"),
        (["--file", "-"], '{"a":' * 5_000, "nested too deeply"),
        (["--file", "-", "--env", "A=1"], '{"template": ["x"]}', "'template' should be a JSON object"),
        (["--file", "-", "--public"], '{"access": "x"}', "'access' should be a JSON object"),
        (
            ["--spec", "x", "--image", "x", "--file", "-", "--ssh-server", "frp.example.com"],
            '{"ssh": true}',
            "'ssh' should be a JSON object",
        ),
        (["--spec", "x", "--image", "\udcff"], None, "write it in UTF-8"),
        (["--file", "-"], '{"name": "other"}', "other"),
        (["--file", "absent.json"], None, "cannot read"),
    ],
)
def test_a_wrong_option_is_a_usage_error(
    api: ApiServer, shell: Shell, options: list[str], stdin: str | None, says: str
) -> None:
    result = shell.run("units", "create", "demo", *options, stdin=stdin)

    assert result.exit_code == 2
    assert says in unwrapped(result.stderr)
    assert api.questions == []


@pytest.mark.parametrize("words", ["units get", "units delete", "units stop", "stock delete", "pools get", "specs get"])
def test_an_empty_name_is_refused(api: ApiServer, shell: Shell, words: str) -> None:
    assert shell.run(*words.split(), "").exit_code == 2
    assert api.questions == []


def test_an_update_keeps_what_was_not_said(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/gpu-units/demo", data(views.unit(), ETag='"uid.1"'))
    api.on("PUT", "/gpu-units/demo", data(views.progressing(generation=2)))

    result = shell.run("units", "update", "demo", "--env", "B=2", "--scheme", "https")

    assert result.stdout == "demo: Progressing (UnitProgressing: its pod starts)\n"
    [put] = api.asked("PUT", "/gpu-units/demo")
    assert put.headers["If-Match"] == '"uid.1"'
    assert put.body == {
        "template": {**views.unit()["template"], "envs": [{"name": "B", "value": "2"}]},
        "access": {"primaryPort": "http", "scheme": "https"},
    }


def test_an_update_of_the_image_says_nothing_else(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/gpu-units/demo", data(views.unit(), ETag='"uid.1"'))
    api.on("PUT", "/gpu-units/demo", data(views.progressing(generation=2)))

    shell.run("units", "update", "demo", "--image", "python:3.13")

    assert api.asked("PUT", "/gpu-units/demo")[0].body == {"image": "python:3.13"}


@pytest.mark.parametrize("words", ["units update demo", "pools update t4"])
def test_an_update_without_a_change_is_a_usage_error(api: ApiServer, shell: Shell, words: str) -> None:
    assert shell.run(*words.split()).exit_code == 2
    assert api.questions == []


@pytest.mark.parametrize("verb", ["stop", "start", "restart"])
def test_a_unit_is_stopped_started_and_restarted(api: ApiServer, shell: Shell, verb: str) -> None:
    api.on("POST", f"/gpu-units/demo/{verb}", data(views.progressing()))

    result = shell.run("units", verb, "demo", "--json")

    assert json.loads(result.stdout)["phase"] == "Progressing"


def test_one_unit_that_cannot_be_deleted_does_not_keep_the_others(api: ApiServer, shell: Shell) -> None:
    api.on("DELETE", "/gpu-units/a", refusal(404, "gpuunit_not_found", "there is no unit 'a'"))
    api.on("DELETE", "/gpu-units/b", NO_CONTENT)

    result = shell.run("units", "delete", "a", "b")

    assert result.exit_code == 1
    assert "there is no unit 'a'" in result.stderr
    assert result.stdout == "b is being deleted\n"


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("units delete demo", "/gpu-units/demo"),
        ("stock delete seed-0", "/operator/stock-units/seed-0"),
        ("pools delete t4", "/operator/stockpools/t4"),
    ],
)
def test_what_answers_without_data_prints_none_for_machines(
    api: ApiServer, shell: Shell, words: str, path: str
) -> None:
    api.on("DELETE", path, NO_CONTENT)

    assert shell.run(*words.split(), "--json").stdout == ""
    assert "is being deleted" in shell.run(*words.split()).stdout


@pytest.mark.parametrize(
    ("words", "method", "path", "body"),
    [
        (
            "stock seed --spec g1.1 --replicas 2 --memory 1Gi --gpu 1 --operation-id op-1",
            "POST",
            "/operator/stock-units",
            {"operationID": "op-1", "specName": "g1.1", "replicas": 2, "memory": "1Gi", "gpu": 1},
        ),
        (
            "pools create t4 --spec t4.1 --replicas 0 --replenish Never --image pause --operation-id op-1",
            "POST",
            "/operator/stockpools",
            {
                "operationID": "op-1",
                "name": "t4",
                "specName": "t4.1",
                "replicas": 0,
                "replenish": "Never",
                "image": "pause",
            },
        ),
        (
            "pools update t4 --replicas 0 --replenish Always",
            "PUT",
            "/operator/stockpools/t4",
            {"replicas": 0, "replenish": "Always"},
        ),
    ],
)
def test_an_operators_wish_is_sent_and_its_answer_printed(
    api: ApiServer, shell: Shell, words: str, method: str, path: str, body: Any
) -> None:
    answer = views.pool() if method == "PUT" else views.job()
    api.on("GET", path, data(views.pool()))
    api.on(method, path, data(answer, 200 if method == "PUT" else 202))

    result = shell.run(*words.split(), "--json")

    assert json.loads(result.stdout) == answer
    assert [question.body for question in api.asked(method, path)] == [body]


def test_a_job_that_is_not_waited_for_says_how_to_follow_it(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/operator/stock-units", data(views.job(), 202))

    result = shell.run("stock", "seed", "--spec", "g1.1", "--replicas", "2")

    assert "job cli-7: pending (pool seed)" in result.stdout
    assert "gpu-platform ops get cli-7" in result.stdout
