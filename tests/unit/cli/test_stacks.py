"""What Pulumi keeps and would change, as a person sees it."""

import json

from tests.unit.cli.shell import Shell
from tests.unit.client import views
from tests.unit.client.api_server import ApiServer, data, refusal

PREVIEW = ("units", "preview", "demo", "--operation-id", "cli-7")
ASKED = "/gpu-units/demo/preview"
FOUND = "/gpu-units/demo/previews/cli-7"
STEP = {
    "op": "update",
    "resource": "demo",
    "type": "gpuplatform:index:GpuUnit",
    "properties": [
        {"path": "spec.image", "kind": "update", "old": "example/edited", "new": "example/train"},
        {"path": "spec.template.args", "kind": "add", "new": ["-m", "[red]"]},
    ],
}
SAME = {"op": "same", "resource": "default.demo", "type": "pulumi:pulumi:Stack", "properties": []}


def fields(table: str) -> dict[str, str]:
    return {line.split()[0]: line.split(maxsplit=1)[1].strip() for line in table.splitlines()}


def test_a_recorded_stack_is_shown_with_what_it_says(api: ApiServer, shell: Shell) -> None:
    stack = views.stack()
    api.on("GET", "/gpu-units/demo/stack", data(stack))

    shown = fields(shell.run("units", "stack", "demo").stdout)

    assert shown == {
        "name": "gpu-unit/default.demo",
        "recorded": "yes",
        "accepted": "abababababab",
        "says": "abababababab",
        "since": f"{stack['recordedAt']} (5h12m ago)",
        "resources": "2",
        "outputs": "uid=u-1",
    }


def test_a_stack_that_is_behind_says_so_and_why(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/gpu-units/new/stack", data(views.stack(recorded=False)))
    behind = views.stack(recorded=False, recordedHash="cd" * 32, error="the backend is away", failures=3)
    api.on("GET", "/gpu-units/behind/stack", data(behind))

    assert fields(shell.run("units", "stack", "new").stdout)["recorded"] == "not yet"
    shown = fields(shell.run("units", "stack", "behind").stdout)
    assert shown["recorded"] == "no, an earlier state is"
    assert (shown["failures"], shown["error"]) == ("3", "the backend is away")


def test_a_unit_without_a_stack_is_an_error_that_says_why(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/gpu-units/demo/stack", refusal(404, "stack_not_found", "belongs to the Pulumi stack shop/prod"))

    result = shell.run("units", "stack", "demo")

    assert result.exit_code == 1
    assert "belongs to the Pulumi stack shop/prod" in result.stderr


def test_a_preview_waits_and_shows_each_change(api: ApiServer, shell: Shell) -> None:
    api.on("POST", ASKED, data(views.preview(), 202))
    done = views.preview("Succeeded", changes={"update": 1, "same": 1}, steps=[SAME, STEP])
    api.on("GET", FOUND, data(views.preview()), data(views.preview("Running")), data(done))

    result = shell.run(*PREVIEW)

    assert result.exit_code == 0
    assert [line.rstrip().split(maxsplit=2) for line in result.stdout.splitlines()] == [
        ["update", "gpuplatform:index:GpuUnit", "demo"],
        ["PATH", "KIND", "CHANGE"],
        ["spec.image", "update", "example/edited -> example/train"],
        ["spec.template.args", "add", '– -> ["-m", "[red]"]'],
        ["demo:", "1", "update, 1 same"],
    ]
    assert result.stderr.splitlines() == ["preview of demo: Pending after 0s", "preview of demo: Running after 0s"]
    assert api.asked("POST", ASKED)[0].body == {"operationID": "cli-7"}


def test_without_an_operation_id_the_preview_that_the_api_names_is_followed(api: ApiServer, shell: Shell) -> None:
    api.on("POST", ASKED, data(views.preview("Running"), 200))
    api.on("GET", FOUND, data(views.preview("Succeeded", changes={"same": 2}, steps=[SAME])))

    result = shell.run("units", "preview", "demo")

    assert (result.exit_code, result.stdout) == (0, "demo: no changes\n")
    assert api.asked("POST", ASKED)[0].body == {}


def test_a_preview_without_changes_says_so(api: ApiServer, shell: Shell) -> None:
    api.on("POST", ASKED, data(views.preview(), 202))
    api.on("GET", FOUND, data(views.preview("Succeeded", changes={"same": 2}, steps=[SAME])))

    result = shell.run(*PREVIEW)

    assert (result.exit_code, result.stdout) == (0, "demo: no changes\n")


def test_a_preview_for_machines_is_the_last_answer(api: ApiServer, shell: Shell) -> None:
    done = views.preview("Succeeded", changes={"same": 1}, steps=[SAME])
    api.on("POST", ASKED, data(views.preview(), 202))
    api.on("GET", FOUND, data(views.preview()), data(done))

    assert json.loads(shell.run(*PREVIEW, "--json").stdout) == done


def test_a_preview_that_fails_ends_with_its_reason(api: ApiServer, shell: Shell) -> None:
    api.on("POST", ASKED, data(views.preview(), 202))
    api.on("GET", FOUND, data(views.preview("Failed", reason="NoWorker", message="does a stack worker run?")))

    result = shell.run(*PREVIEW)

    assert (result.exit_code, result.stdout) == (1, "")
    assert "error: preview of demo is not done: Failed (NoWorker: does a stack worker run?)" in result.stderr


def test_a_preview_that_nobody_runs_is_not_waited_for_for_ever(api: ApiServer, shell: Shell) -> None:
    api.on("POST", ASKED, data(views.preview(), 202))
    api.on("GET", FOUND, data(views.preview()))

    result = shell.run(*PREVIEW, "--timeout", "0.2")

    assert result.exit_code == 1
    assert "preview of demo is not done after 0.2 s: Pending" in result.stderr


CREATE = ("units", "create", "demo", "--spec", "host.1", "--image", "python:3.12", "--wait-recorded")


def test_create_can_wait_until_the_stack_is_recorded(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/gpu-units", data(views.unit(), 201))
    failing = views.stack(recorded=False, error="the backend is away", failures=2)
    stacks = (views.stack(recorded=False), failing, views.stack())
    api.on("GET", "/gpu-units/demo/stack", *map(data, stacks))

    result = shell.run(*CREATE)

    assert result.exit_code == 0
    assert result.stdout.startswith("demo is recorded as gpu-unit/default.demo after ")
    assert result.stderr.splitlines() == [
        "stack of demo: not recorded yet after 0s",
        "stack of demo: failed 2 times: the backend is away after 0s",
    ]


def test_create_fails_when_the_stack_is_not_recorded_in_time(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/gpu-units", data(views.unit(), 201))
    api.on("GET", "/gpu-units/demo/stack", data(views.stack(recorded=False)))

    result = shell.run(*CREATE, "--timeout", "0.2")

    assert result.exit_code == 1
    assert "stack of demo is not recorded after 0.2 s: not recorded yet" in result.stderr
