"""`--wait` stays until it is so, and says what it sees."""

import json

from gpu_platform.domain.json_text import Json
from tests.unit.cli.shell import Shell
from tests.unit.client import views
from tests.unit.client.api_server import NO_CONTENT, Answer, ApiServer, data, refusal

CREATE = ("units", "create", "demo", "--spec", "host.1", "--image", "python:3.12", "--wait")
PENDING = views.unit(phase="Pending", reason=None, message=None, observedGeneration=None)
GONE = refusal(404, "gpuunit_not_found", "there is no unit 'demo'")


def test_create_waits_until_the_unit_is_ready(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/gpu-units", data(PENDING, 201))
    progressing = views.progressing()
    api.on("GET", "/gpu-units/demo", *map(data, (PENDING, progressing, progressing, views.unit())))

    result = shell.run(*CREATE)

    assert result.exit_code == 0
    assert result.stdout.startswith("demo is Ready after ")
    assert views.unit()["accessURL"] in result.stdout
    assert result.stderr.splitlines() == [
        "demo: Pending after 0s",
        "demo: Progressing (UnitProgressing: its pod starts) after 0s",
    ]


def test_a_unit_without_probes_that_ends_at_once_is_no_success(api: ApiServer, shell: Shell) -> None:
    unprobed: Json = {"template": {"command": ["false"]}}
    api.on("POST", "/gpu-units", data({**PENDING, **unprobed}, 201))
    failed = views.unit(phase="Failed", reason="PodStartupFailed", message="Error (exit code 1)", **unprobed)
    api.on("GET", "/gpu-units/demo", data(views.unit(**unprobed)), data(failed))

    result = shell.run(*CREATE)

    assert result.exit_code == 1
    assert "error: demo is not Ready: Failed (PodStartupFailed: Error (exit code 1))" in result.stderr


def test_the_last_answer_is_printed_for_machines(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/gpu-units", data(PENDING, 201))
    ready = views.unit()
    api.on("GET", "/gpu-units/demo", data(views.progressing()), data(ready))

    assert json.loads(shell.run(*CREATE, "--json").stdout) == ready


def test_a_terminal_shows_a_line_that_moves(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/gpu-units", data(PENDING, 201))
    api.on("GET", "/gpu-units/demo", data(views.progressing()), data(views.progressing()), data(views.unit()))

    result = shell.run(*CREATE, FORCE_COLOR="1", TERM="xterm-256color", COLUMNS="200")

    assert "demo: Progressing (UnitProgressing: its pod starts)  0s" in result.stderr
    assert "after 0s" not in result.stderr


def test_a_failed_unit_ends_the_wait_with_its_reason(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/gpu-units", data(PENDING, 201))
    failed = views.unit(phase="Failed", reason="PodStartupFailed", message="no such image")
    api.on("GET", "/gpu-units/demo", data(failed))

    result = shell.run(*CREATE)

    assert result.exit_code == 1
    assert "error: demo is not Ready: Failed (PodStartupFailed: no such image)" in result.stderr
    assert result.stdout == ""


def test_a_wait_ends_with_its_time(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/gpu-units", data(PENDING, 201))
    api.on("GET", "/gpu-units/demo", data(views.progressing()))

    result = shell.run(*CREATE, "--timeout", "0.3")

    assert result.exit_code == 1
    assert "error: demo is not Ready after 0.3 s: Progressing (UnitProgressing: its pod starts)" in result.stderr


def test_a_wait_outlives_a_short_absence_of_the_api(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/gpu-units", data(PENDING, 201))
    away = refusal(503, "service_unavailable", "Kubernetes does not answer")
    api.on("GET", "/gpu-units/demo", Answer(is_cut=True), away, GONE, data(views.unit()))

    result = shell.run(*CREATE)

    assert result.exit_code == 0
    assert "no answer: Kubernetes does not answer" in result.stderr


def test_a_refusal_ends_a_wait_at_once(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/gpu-units", data(PENDING, 201))
    api.on("GET", "/gpu-units/demo", refusal(401, "unauthenticated", "the key was withdrawn"))

    assert "the key was withdrawn" in shell.run(*CREATE).stderr


def test_an_update_waits_for_its_own_generation(api: ApiServer, shell: Shell) -> None:
    old, new = views.unit(), views.unit(generation=2, observedGeneration=2)
    api.on("PUT", "/gpu-units/demo", data(views.unit(generation=2)))
    api.on("GET", "/gpu-units/demo", data(old), data(old), data(views.unit(generation=2)), data(new))

    result = shell.run("units", "update", "demo", "--image", "python:3.13", "--wait", "--json")

    assert json.loads(result.stdout) == new


def test_stop_waits_until_stopped(api: ApiServer, shell: Shell) -> None:
    stopped = views.unit(running=False, phase="Stopped", generation=2, observedGeneration=2)
    api.on("POST", "/gpu-units/demo/stop", data(views.unit(running=False, generation=2)))
    api.on("GET", "/gpu-units/demo", data(views.unit(running=False, generation=2)), data(stopped))

    result = shell.run("units", "stop", "demo", "--wait")

    assert (result.exit_code, result.stdout[:24]) == (0, "demo is Stopped after 0.")


def test_delete_waits_until_the_units_are_gone(api: ApiServer, shell: Shell) -> None:
    api.on("DELETE", "/gpu-units/demo", NO_CONTENT)
    api.on("GET", "/gpu-units/demo", data(views.unit(phase="Terminating")), GONE)

    result = shell.run("units", "delete", "demo", "--wait")

    assert (result.exit_code, result.stdout) == (0, "demo is being deleted\ndemo is gone\n")


def test_delete_waits_for_the_others_when_one_cannot_be_deleted(api: ApiServer, shell: Shell) -> None:
    api.on("DELETE", "/gpu-units/other", refusal(404, "gpuunit_not_found", "there is no unit 'other'"))
    api.on("DELETE", "/gpu-units/demo", NO_CONTENT)
    api.on("GET", "/gpu-units/demo", GONE)

    result = shell.run("units", "delete", "other", "demo", "--wait")

    assert (result.exit_code, result.stdout) == (1, "demo is being deleted\ndemo is gone\n")


def test_seed_waits_until_the_stock_can_be_used(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/operator/stock-units", data(views.job(), 202))
    api.on("GET", "/operator/jobs/cli-7", data(views.job("running")), data(views.job("succeeded")))
    waiting = views.stock_unit("seed-1", "waiting", reason="Unschedulable")
    api.on(
        "GET",
        "/operator/stock-units",
        data([views.stock_unit(), waiting]),
        data([views.stock_unit(), views.stock_unit("seed-1")]),
    )

    result = shell.run("stock", "seed", "--spec", "g1.1", "--replicas", "2", "--wait")

    assert result.exit_code == 0
    assert result.stdout.startswith("stock of g1.1 is ready after ")
    assert "1 of 2 ready; seed-1 waits (Unschedulable)" in result.stderr
    assert api.asked("GET", "/operator/stock-units")[0].query == {"pool": "seed"}


def test_a_failed_job_ends_the_wait_with_its_error(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/operator/stock-units", data(views.job(), 202))
    api.on("GET", "/operator/jobs/cli-7", data(views.job("failed", error="there is no spec g1.1")))

    result = shell.run("stock", "seed", "--spec", "g1.1", "--replicas", "2", "--wait")

    assert result.exit_code == 1
    assert "failed: there is no spec g1.1" in result.stderr


def test_a_new_pool_is_waited_for_until_it_is_full(api: ApiServer, shell: Shell) -> None:
    api.on("POST", "/operator/stockpools", data(views.job(objectName="t4"), 202))
    api.on("GET", "/operator/jobs/cli-7", data(views.job("succeeded", objectName="t4")))
    filling = views.pool(phase="Progressing", available=1, message="1 of 3 free units are ready")
    api.on("GET", "/operator/stockpools/t4", data(filling), data(views.pool()))

    result = shell.run("pools", "create", "t4", "--spec", "t4.1", "--replicas", "3", "--wait")

    assert result.stdout.startswith("pool t4 is ready after ")
    assert "pool t4: Progressing (1 of 3 free units are ready)" in result.stderr
