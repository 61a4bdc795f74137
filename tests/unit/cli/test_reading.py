"""Tables for people, the API's own answer for machines."""

import json
from typing import Any

import pytest

from tests.unit.cli.shell import KEY, Shell
from tests.unit.client import views
from tests.unit.client.api_server import Answer, ApiServer, data, page, refusal


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()]


def test_units_are_listed_with_phase_age_and_reason(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/gpu-units", data([views.unit(), views.progressing("slow", nodeName=None, accessURL=None)]))

    result = shell.run("units", "list")

    assert result.exit_code == 0
    assert rows(result.stdout) == [
        ["NAME", "SPEC", "PHASE", "NODE", "AGE", "DETAIL"],
        ["demo", "host.1", "Ready", "host", "5h12m", views.unit()["accessURL"]],
        ["slow", "host.1", "Progressing", "–", "5h12m", "UnitProgressing:", "its", "pod", "starts"],
    ]
    [question] = api.questions
    assert question.headers["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_a_narrow_terminal_cuts_nothing(api: ApiServer, shell: Shell, terminal: str) -> None:
    name, why = (
        "a-name-of-forty-characters-0123456789-0123",
        "a sentence that is a good deal longer than a terminal is wide",
    )
    api.on("GET", "/gpu-units", data([views.progressing(name, reason=None, message=why)]))

    result = shell.run("units", "list", FORCE_COLOR="1", NO_COLOR="1", TERM=terminal, COLUMNS="60")

    assert "…" not in result.stdout
    assert {name, "5h12m", *why.split()} <= set(result.stdout.split())


def test_the_list_follows_every_page(api: ApiServer, shell: Shell) -> None:
    first, second = views.unit("a"), views.unit("b")
    api.on("GET", "/gpu-units", page([first], "more"), page([second], None))

    result = shell.run("units", "list", "--spec", "host.1", "--phase", "Ready", "--json")

    assert json.loads(result.stdout) == [first, second]
    assert [question.query for question in api.questions] == [
        {"specName": "host.1", "phase": "Ready"},
        {"specName": "host.1", "phase": "Ready", "continue": "more"},
    ]


def test_an_empty_list_is_a_remark_and_no_data(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/gpu-units", data([]))

    result = shell.run("units", "list")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "gpu-platform units create" in result.stderr


@pytest.mark.parametrize(
    ("words", "path", "answer"),
    [
        ("units list", "/gpu-units", [views.unit()]),
        ("units get demo", "/gpu-units/demo", views.unit()),
        ("units events demo", "/gpu-units/demo/events", []),
        ("units metrics demo", "/gpu-units/demo/metrics", views.unit_metrics()),
        ("units url demo", "/gpu-units/demo/address", {"url": "http://127.0.0.1:1", "reach": "host"}),
        ("units stack demo", "/gpu-units/demo/stack", views.stack()),
        ("pools stack t4", "/operator/stockpools/t4/stack", views.stack()),
        ("stock list", "/operator/stock-units", [views.stock_unit()]),
        ("pools list", "/operator/stockpools", [views.pool()]),
        ("pools get t4", "/operator/stockpools/t4", views.pool()),
        ("specs list", "/operator/specs", [views.spec()]),
        ("specs get t4.1", "/operator/specs/t4.1", views.spec()),
        ("ops list", "/operator/jobs", [views.job()]),
        ("ops get cli-7", "/operator/jobs/cli-7", views.job()),
        ("health", "/health", views.health()),
    ],
)
def test_json_is_exactly_the_data(api: ApiServer, shell: Shell, words: str, path: str, answer: Any) -> None:
    api.on("GET", path, data(answer))

    result = shell.run(*words.split(), "--json")

    assert result.exit_code == 0
    assert json.loads(result.stdout) == answer


def test_a_unit_is_shown_with_all_that_it_runs(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/gpu-units/demo", data(views.unit()))

    shown = dict(line.split(maxsplit=1) for line in shell.run("units", "get", "demo").stdout.splitlines())

    assert shown["phase"].strip() == "Ready"
    assert shown["arguments"].strip() == "-m http.server"
    assert shown["environment"].strip() == "A=1"
    assert shown["ports"].strip() == "http=8080/TCP"
    assert shown["age"].strip() == "5h12m"


@pytest.mark.parametrize(("kind", "name"), [("units", "demo"), ("functions", "words")])
def test_what_runs_is_shown_with_its_probes(api: ApiServer, shell: Shell, kind: str, name: str) -> None:
    probes = {
        "startup": {"tcp": {"port": "http"}},
        "readiness": {"http": {"path": "/ok", "port": "http"}, "periodSeconds": 5, "initialDelaySeconds": 2},
        "liveness": {"command": ["cat", "/ready"], "timeoutSeconds": 3, "failureThreshold": 4},
    }
    template = {**views.unit()["template"], "probes": probes}
    api.on("GET", "/gpu-units/demo", data(views.unit(template=template)))
    api.on("GET", "/serverless/functions/words", data(views.function(template=template)))

    lines = [line.strip() for line in shell.run(kind, "get", name).stdout.splitlines()]

    at = next(index for index, line in enumerate(lines) if line.startswith("probes"))
    assert lines[at].removeprefix("probes").strip() == (
        "startup: connection to http; every 10 s, timeout 1 s, 3 failures count"
    )
    assert lines[at + 1] == "readiness: GET /ok on http; first after 2 s, every 5 s, timeout 1 s, 3 failures count"
    assert lines[at + 2] == "liveness: command cat /ready; every 10 s, timeout 3 s, 4 failures count"


def test_what_looks_like_markup_in_an_answer_is_printed_as_it_is(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/gpu-units", data([views.progressing(message="[red]x[/] [/bold]")]))

    assert "[red]x[/] [/bold]" in shell.run("units", "list").stdout


def test_events_are_listed_as_they_came(api: ApiServer, shell: Shell) -> None:
    event = {"type": "Warning", "reason": "Failed", "message": "no such image", "object": "Pod/unit-demo-1", "count": 3}
    seen = {"firstSeen": None, "lastSeen": views.ago(hours=5, minutes=12.5)}
    api.on("GET", "/gpu-units/demo/events", data([{**event, **seen}]))

    assert rows(shell.run("units", "events", "demo").stdout) == [
        ["AGE", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"],
        ["5h12m", "Warning", "Failed", "Pod/unit-demo-1", "3", "no", "such", "image"],
    ]


def test_the_url_is_printed_alone(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/gpu-units/demo/address", data({"url": "http://127.0.0.1:8123", "reach": "host"}))

    result = shell.run("units", "url", "demo")

    assert (result.stdout, result.stderr) == ("http://127.0.0.1:8123\n", "")


@pytest.mark.parametrize(
    ("reach", "printed", "is_through_the_platform"),
    [("host", "http://127.0.0.1:8123", False), ("cluster", "https://gpu.example/proxy/http/", True)],
)
def test_the_url_goes_through_the_platform_where_the_unit_is_not_on_this_machine(
    api: ApiServer, shell: Shell, reach: str, printed: str, is_through_the_platform: bool
) -> None:
    place = {"url": "http://127.0.0.1:8123", "reach": reach, "proxyURL": "https://gpu.example/proxy/http/"}
    api.on("GET", "/gpu-units/demo/address", data(place))

    result = shell.run("units", "url", "demo")

    assert result.stdout == f"{printed}\n"
    assert ("Authorization: Bearer $GPU_PLATFORM_KEY" in result.stderr) is is_through_the_platform


def test_a_public_unit_has_a_url_that_needs_no_key(api: ApiServer, shell: Shell) -> None:
    proxied = {"url": "http://unit-demo", "reach": "cluster", "proxyURL": "https://gpu.example/proxy/http/"}
    api.on("GET", "/gpu-units/demo/address", data({**proxied, "publicURL": "https://demo-1.example.com/"}))

    result = shell.run("units", "url", "demo")

    assert (result.stdout, result.stderr) == ("https://demo-1.example.com/\n", "")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({"publicMessage": "no gateway has taken up its HTTPRoute yet"}, "no gateway has taken up its HTTPRoute yet"),
        ({"publicMessage": "everybody can", "publicURL": "https://demo-1.example.com/"}, "https://demo-1.example.com/"),
    ],
)
def test_a_public_unit_says_where_it_is_or_what_it_waits_for(
    api: ApiServer, shell: Shell, said: dict[str, str], shown: str
) -> None:
    api.on("GET", "/gpu-units/demo", data(views.unit(**said)))

    lines = shell.run("units", "get", "demo").stdout.splitlines()

    assert f"public {shown}" in [" ".join(line.split()) for line in lines]


def test_the_gpus_of_a_unit_are_rows(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/gpu-units/demo/metrics", data(views.unit_metrics()))

    lines = shell.run("units", "metrics", "demo").stdout.splitlines()

    assert lines[1].split() == ["0", "H100", "node-a", "75%", "61440", "MiB", "20480", "MiB"]
    assert lines[2].split()[:3] == ["1/2", "H100", "node-a"]


def test_a_platform_that_asks_no_gpus_says_who_can_change_that(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/gpu-units/demo/metrics", refusal(404, "gpu_metrics_not_configured", "nobody asks the GPUs"))

    result = shell.run("units", "metrics", "demo")

    assert result.exit_code == 1
    assert "nvidiaMetricsEndpoint" in result.stderr


def test_an_address_inside_the_cluster_is_marked_as_such(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/gpu-units/demo/address", data({"url": "http://unit-demo.x.svc:80", "reach": "cluster"}))

    result = shell.run("units", "url", "demo")

    assert result.stdout == "http://unit-demo.x.svc:80\n"
    assert "inside the cluster only" in result.stderr


def test_logs_are_passed_through(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/gpu-units/demo/logs", Answer(body="line 1\nlïne [2]\n"))

    result = shell.run("units", "logs", "demo", "-f", "--tail", "2", "--previous", "--container", "ssh-frpc")

    assert result.stdout == "line 1\nlïne [2]\n"
    assert api.questions[0].query == {"follow": "true", "tail": "2", "previous": "true", "container": "ssh-frpc"}


def test_stock_is_filtered_by_the_api(api: ApiServer, shell: Shell) -> None:
    waiting = views.stock_unit("seed-1", "waiting", reason="Unschedulable", message="no GPU is free")
    claimed = views.stock_unit("seed-2", "claimed", claimedBy="runtime-instance/demo")
    api.on("GET", "/operator/stock-units", data([waiting, claimed]))

    result = shell.run("stock", "list", "--spec", "g1.1", "--pool", "seed", "--state", "waiting")

    assert api.questions[0].query == {"specName": "g1.1", "pool": "seed", "state": "waiting"}
    assert rows(result.stdout)[1:] == [
        ["seed-1", "seed", "g1.1", "waiting", "–", "3h7m", "–", "Unschedulable:", "no", "GPU", "is", "free"],
        ["seed-2", "seed", "g1.1", "claimed", "–", "3h7m", "runtime-instance/demo", "–"],
    ]


def test_pools_specs_and_jobs_are_listed(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/operator/stockpools", data([views.pool()]))
    api.on("GET", "/operator/specs", data([views.spec()]))
    failed = views.job("failed", error="no such spec", createdAt=views.ago(hours=3, minutes=7))
    api.on("GET", "/operator/jobs", data([failed]))

    assert " ".join(rows(shell.run("pools", "list").stdout)[1]) == "t4 t4.1 3 3 0 Always Ready 2d4h –"
    assert " ".join(rows(shell.run("specs", "list").stdout)[1]) == "t4.1 1 Tesla-T4 4 16Gi 0.35"
    assert " ".join(rows(shell.run("ops", "list").stdout)[1]) == "cli-7 seed_stock_units failed seed 3h7m no such spec"


def test_single_things_are_shown(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/operator/stockpools/t4", data(views.pool()))
    api.on("GET", "/operator/specs/t4.1", data(views.spec()))
    api.on("GET", "/operator/jobs/cli-7", data(views.job()))

    assert ["replenish", "Always"] in rows(shell.run("pools", "get", "t4").stdout)
    assert ["tolerations", "key=nvidia.com/gpu", "operator=Exists"] in rows(shell.run("specs", "get", "t4.1").stdout)
    assert ["object", "runtime-stock/seed"] in rows(shell.run("ops", "get", "cli-7").stdout)


def test_health_shows_counts_and_what_is_degraded(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/health", data(views.health(degraded=["the stock of t4.1 is empty"])))

    result = shell.run("health")

    assert result.exit_code == 0
    assert ["nodes", "5", "of", "5", "ready"] in rows(result.stdout)
    assert "the stock of t4.1 is empty" in result.stdout
    assert "Authorization" in api.questions[0].headers


def test_health_without_a_key_says_that_the_platform_answers(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/health", data({"status": "ok"}))

    result = shell.run("health", GPU_PLATFORM_KEY=None)

    assert result.exit_code == 0
    assert ["platform", "answers"] in rows(result.stdout)
    assert "nodes, GPUs and counts need a key: set GPU_PLATFORM_KEY" in result.stdout
    assert "Authorization" not in api.questions[0].headers


def test_health_fails_when_the_api_could_not_look_at_the_key(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/health", data({"status": "ok"}))

    result = shell.run("health")

    assert result.exit_code == 1
    assert "the API has not read its keys yet" in result.stdout


def test_health_fails_when_kubernetes_is_away(api: ApiServer, shell: Shell) -> None:
    api.on("GET", "/health", data(views.health(kubernetesConnected=False, kubeError="connection refused")))

    result = shell.run("health")

    assert result.exit_code == 1
    assert "not reached: connection refused" in result.stdout
