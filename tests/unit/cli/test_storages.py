"""Storages on the command line, and units that mount them."""

import json

import pytest

from gpu_platform.domain.json_text import Json
from tests.unit.cli.shell import Shell
from tests.unit.client import views
from tests.unit.client.api_server import NO_CONTENT, Answer, ApiServer, data, page, refusal

STORAGES = "/gpu-storages"
PENDING = {"phase": "Pending", "reason": "StoragePending"}


def failed(digest: str) -> Json:
    status = {"phase": "Failed", "recoveryPhase": "Required", "observedDigest": digest}
    return views.storage(phase="Failed", reason="StoragePrepareFailed", prepareStatus=status)


def test_a_storage_is_created_from_its_options(api: ApiServer, shell: Shell) -> None:
    api.on("POST", STORAGES, data(views.storage(**PENDING), 201))

    result = shell.run(
        *("storages", "create", "weights", "--size", "10Gi", "--class", "fast", "--operation-id", "op-1"),
        *("--from-image", "example/fill", "--command", "fill", "--arg=--all", "--accessor", "--retain"),
    )

    assert (result.exit_code, result.stdout) == (0, "weights: Pending (StoragePending)\n")
    assert api.questions[0].body == {
        "operationID": "op-1",
        "name": "weights",
        "size": "10Gi",
        "storageClassName": "fast",
        "prepare": {"fromImage": "example/fill", "command": ["fill"], "args": ["--all"]},
        "accessor": {"enabled": True},
        "retain": True,
    }


def test_creating_can_wait_until_it_can_be_mounted(api: ApiServer, shell: Shell) -> None:
    api.on("POST", STORAGES, data(views.storage(**PENDING), 201))
    api.on("GET", f"{STORAGES}/weights", data(views.storage(**PENDING)), data(views.storage()))

    result = shell.run("storages", "create", "weights", "--size", "10Gi", "--wait")

    assert result.exit_code == 0
    assert result.stdout.startswith("weights is Ready after ")
    assert shell.run("storages", "create", "weights").exit_code == 2


def test_the_words_of_its_preparation_are_passed_through_and_of_its_browser_if_wanted(
    api: ApiServer, shell: Shell
) -> None:
    api.on("GET", f"{STORAGES}/weights/logs", Answer(body="fetching\n"), Answer(body="browsing\n"))

    assert shell.run("storages", "logs", "weights", "--tail", "2").stdout == "fetching\n"
    assert shell.run("storages", "logs", "weights", "--browser", "-f").stdout == "browsing\n"
    assert [question.query for question in api.questions] == [{"tail": "2"}, {"follow": "true", "of": "browser"}]


def test_its_events_are_listed_as_they_came(api: ApiServer, shell: Shell) -> None:
    event = {
        "type": "Warning",
        "reason": "FailedCreate",
        "message": "quota",
        "object": "Job/prep-weights-1",
        "count": 2,
    }
    api.on("GET", f"{STORAGES}/weights/events", data([{**event, "firstSeen": None, "lastSeen": None}]))

    [_, row] = shell.run("storages", "events", "weights").stdout.splitlines()

    assert row.split() == ["–", "Warning", "FailedCreate", "Job/prep-weights-1", "2", "quota"]


def test_a_change_says_only_what_was_said(api: ApiServer, shell: Shell) -> None:
    api.on("GET", f"{STORAGES}/weights", data(views.storage(), ETag='"7"'))
    api.on("PUT", f"{STORAGES}/weights", data(views.storage()))

    shell.run("storages", "update", "weights", "--size", "20Gi")
    shell.run("storages", "update", "weights", "--no-accessor")

    changes = api.asked("PUT", f"{STORAGES}/weights")
    assert [change.body for change in changes] == [{"size": "20Gi"}, {"accessor": {"enabled": False}}]
    assert {change.headers["If-Match"] for change in changes} == {'"7"'}
    assert shell.run("storages", "update", "weights").exit_code == 2


def test_storages_are_listed_and_shown(api: ApiServer, shell: Shell) -> None:
    api.on("GET", STORAGES, page([views.storage()], "more"), page([views.storage("other", mountedBy=[])], None))
    api.on("GET", f"{STORAGES}/weights", data(views.storage()))

    lines = shell.run("storages", "list", "--phase", "Ready").stdout.splitlines()
    assert [line.split()[:5] for line in lines[1:]] == [
        ["weights", "10Gi", "10Gi", "Ready", "train"],
        ["other", "10Gi", "10Gi", "Ready", "–"],
    ]
    assert api.questions[0].query == {"phase": "Ready"}
    shown = shell.run("storages", "get", "weights").stdout
    assert "gpu-storage/default.weights" in shown
    assert json.loads(shell.run("storages", "get", "weights", "--json").stdout)["mountedBy"] == ["train"]


def test_a_file_browser_is_shown_by_where_one_reaches_it(api: ApiServer, shell: Shell) -> None:
    where = "http://platform.example/api/v1/gpu-storages/weights/proxy/"
    inside = {"phase": "Ready", "accessURL": "http://accessor-weights.x.svc:5000/"}
    api.on("GET", f"{STORAGES}/weights", data(views.storage(accessorStatus=inside, proxyURL=where)))

    shown = shell.run("storages", "get", "weights").stdout

    assert where in shown
    assert inside["accessURL"] not in shown


def test_a_recovery_is_waited_for_past_the_failure_that_was_there_before(api: ApiServer, shell: Shell) -> None:
    api.on("POST", f"{STORAGES}/weights/recover", data(failed("old")))
    api.on("GET", f"{STORAGES}/weights", data(failed("old")), data(views.storage(**PENDING)), data(views.storage()))

    result = shell.run("storages", "recover", "weights", "--wait", "--operation-id", "op-2")

    assert result.exit_code == 0
    assert result.stdout.startswith("weights is Ready after ")
    assert api.questions[0].body == {"operationID": "op-2"}


def test_a_recovery_that_fails_too_is_told(api: ApiServer, shell: Shell) -> None:
    api.on("POST", f"{STORAGES}/weights/recover", data(failed("old")))
    api.on("GET", f"{STORAGES}/weights", data(failed("new")))

    result = shell.run("storages", "recover", "weights", "--wait")

    assert result.exit_code == 1
    assert "StoragePrepareFailed" in result.stderr


def test_one_that_is_mounted_does_not_keep_the_others_from_being_deleted(api: ApiServer, shell: Shell) -> None:
    message = "the storage 'weights' is mounted by the unit 'train'"
    api.on("DELETE", f"{STORAGES}/weights", refusal(409, "storage_in_use", message))
    api.on("DELETE", f"{STORAGES}/other", NO_CONTENT)

    result = shell.run("storages", "delete", "weights", "other")

    assert (result.exit_code, result.stdout) == (1, "other is being deleted\n")
    assert message in result.stderr


IN_USE = refusal(409, "storage_in_use", "the storage 'weights' is mounted by the unit 'train'")
MOUNTS = [{"name": "weights", "mountPath": "/weights"}]


def test_deleting_with_wait_waits_for_the_release_by_a_unit_that_is_being_deleted(api: ApiServer, shell: Shell) -> None:
    gone = refusal(404, "gpustorage_not_found", "no storage 'weights'")
    api.on("GET", f"{STORAGES}/weights", data(views.storage()), data(views.storage()), gone)
    leaving = views.unit("train", phase="Terminating", storageMounts=MOUNTS)
    api.on("GET", "/gpu-units/train", data(leaving), refusal(404, "gpuunit_not_found", "no unit 'train'"))
    api.on("DELETE", f"{STORAGES}/weights", IN_USE, IN_USE, NO_CONTENT)

    result = shell.run("storages", "delete", "weights", "--wait")

    assert (result.exit_code, result.stdout) == (0, "weights is being deleted\nweights is gone\n")
    assert "weights: the storage 'weights' is mounted by the unit 'train'" in result.stderr
    assert len(api.asked("DELETE", f"{STORAGES}/weights")) == 3


@pytest.mark.parametrize("options", [(), ("--wait",)])
def test_one_that_a_live_unit_mounts_is_not_waited_for(api: ApiServer, shell: Shell, options: tuple[str, ...]) -> None:
    api.on("GET", f"{STORAGES}/weights", data(views.storage()))
    api.on("GET", "/gpu-units/train", data(views.unit("train", storageMounts=MOUNTS)))
    api.on("DELETE", f"{STORAGES}/weights", IN_USE)

    result = shell.run("storages", "delete", "weights", *options)

    assert (result.exit_code, result.stdout) == (1, "")
    assert len(api.asked("DELETE", f"{STORAGES}/weights")) == 1


def test_its_stack_is_shown(api: ApiServer, shell: Shell) -> None:
    stack = {"name": "gpu-storage/default.weights", "recorded": True, "acceptedHash": "ab" * 32, "failures": 0}
    api.on("GET", f"{STORAGES}/weights/stack", data(stack))

    assert "gpu-storage/default.weights" in shell.run("storages", "stack", "weights").stdout


def test_a_unit_is_created_with_what_it_mounts(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/gpu-units", data(views.unit(), 201))

    shell.run(
        *("units", "create", "demo", "--spec", "host.1", "--image", "python:3.12"),
        *("--mount", "weights:/mnt/weights:ro", "--mount", "data:/data"),
    )

    assert api.questions[0].body["storageMounts"] == [
        {"name": "weights", "mountPath": "/mnt/weights", "readOnly": True},
        {"name": "data", "mountPath": "/data"},
    ]


def test_a_unit_mounts_something_else_or_nothing(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/gpu-units/demo", data(views.unit()))
    api.on("PUT", "/gpu-units/demo", data(views.unit()))

    shell.run("units", "update", "demo", "--mount", "data:/data")
    shell.run("units", "update", "demo", "--unmount")

    changes = [question.body for question in api.asked("PUT", "/gpu-units/demo")]
    assert changes == [{"storageMounts": [{"name": "data", "mountPath": "/data"}]}, {"storageMounts": []}]
    assert shell.run("units", "update", "demo", "--unmount", "--mount", "data:/data").exit_code == 2


@pytest.mark.parametrize("text", ["data", ":/data", "data:data", "data:/data:rw", "data:/data:ro:x"])
def test_a_mount_that_cannot_be_read_is_refused_with_an_example(shell: Shell, text: str) -> None:
    result = shell.run("units", "create", "demo", "--spec", "host.1", "--image", "python:3.12", "--mount", text)

    assert result.exit_code == 2
    assert "data:/mnt/data:ro" in result.stderr
