"""`units watch`: a line per event, and no event lost when the connection breaks."""

import json
import signal
import subprocess
import sys

from tests.unit.cli.shell import KEY, Shell
from tests.unit.client import views
from tests.unit.client.api_server import Answer, ApiServer, event, refusal, stream

END = refusal(401, "unauthenticated", "the key was withdrawn")


def test_every_event_is_a_line(api: ApiServer, shell: Shell) -> None:
    events = stream(
        *event("added", "7", views.progressing()), ": still there", "", *event("deleted", "8", views.unit())
    )
    api.on("GET", "/gpu-units", events, END)

    result = shell.run("units", "watch")

    lines = [line.split()[1:] for line in result.stdout.splitlines()]
    assert lines == [
        ["added", "demo", "Progressing", "(UnitProgressing:", "its", "pod", "starts)"],
        ["deleted", "demo", "Ready", "(UnitReady:", "the", "unit's", "pod", "is", "ready)"],
    ]
    assert (result.exit_code, "the key was withdrawn" in result.stderr) == (1, True)


def test_a_watch_goes_on_after_the_last_id(api: ApiServer, shell: Shell) -> None:
    first = stream(*event("added", "7", views.unit()), "id: 9", "", "id: 10", "event: modified", "data: {}")
    api.on("GET", "/gpu-units", first, END)

    shell.run("units", "watch")

    asked = api.asked("GET", "/gpu-units")
    assert [question.headers.get("Last-Event-ID") for question in asked] == [None, "9"]
    assert [question.query for question in asked] == [{"watch": "true"}] * 2


def test_machines_get_an_object_per_line(api: ApiServer, shell: Shell) -> None:
    unit = views.unit()
    api.on("GET", "/gpu-units", stream(*event("modified", "7", unit), "event: resync", "data: {}", ""), END)

    result = shell.run("units", "watch", "--json")

    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"event": "modified", "id": "7", "data": unit},
        {"event": "resync", "id": "7", "data": {}},
    ]


def test_whoever_never_answered_is_not_waited_for(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/gpu-units", Answer(is_cut=True))

    assert shell.run("units", "watch").exit_code == 1
    assert len(api.questions) == 1


def test_ctrl_c_ends_a_watch_quietly(api: ApiServer) -> None:
    events = "\n".join([*event("added", "7", views.unit()), ""])
    api.on("GET", "/gpu-units", Answer(body=events, stays_open=True))
    environment = {"GPU_PLATFORM_URL": api.url, "GPU_PLATFORM_KEY": KEY}
    command = [sys.executable, "-m", "gpu_platform.cli", "units", "watch"]

    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "added" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)

    assert (process.returncode, errors) == (130, "")
