"""`--file`: create and update take the same one, and options and objects are merged with it by one rule."""

import json
from pathlib import Path

import pytest
import typer

from gpu_platform.api_models.functions import CreateFunction
from gpu_platform.api_models.stock import ChangeStockPool, CreateStockPool
from gpu_platform.api_models.storages import CreateStorage
from gpu_platform.api_models.units import CreateUnit
from gpu_platform.cli.request_files import FUNCTION, POOL, STORAGE, UNIT, Kind, merge
from gpu_platform.cli.unit_options import parse_probe
from gpu_platform.domain.functions import FunctionChange
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.storages import StorageChange
from gpu_platform.domain.units import Probe, UnitChange
from gpu_platform.domain.value import Value
from tests.unit.cli.shell import Shell, unwrapped
from tests.unit.client import views
from tests.unit.client.api_server import ApiServer, data

HTTP, TCP = {"http": {"port": "web"}}, {"tcp": {"port": "web"}}


@pytest.mark.parametrize(
    ("base", "over", "merged"),
    [
        ({"a": 1, "b": 1}, {"b": 2, "c": 3}, {"a": 1, "b": 2, "c": 3}),
        ({"access": {"scheme": "http", "public": True}}, {"access": {"public": False}}, None),
        ({"template": {"args": ["a", "b"]}}, {"template": {"args": ["c"]}}, {"template": {"args": ["c"]}}),
        ({"a": {"b": {"c": 1, "d": 1}}}, {"a": {"b": {"d": 2}}}, {"a": {"b": {"c": 1, "d": 2}}}),
        ({"a": {"b": 1, "c": 1}}, {"a": {"b": None}}, {"a": {"c": 1}}),
        ({"a": None}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
        ({"probes": {"readiness": HTTP, "startup": HTTP}}, {"probes": {"readiness": TCP}}, None),
    ],
)
def test_objects_are_merged_field_by_field_and_everything_else_is_replaced(
    base: Json, over: Json, merged: Json | None
) -> None:
    expected = {
        "access": {"scheme": "http", "public": False},
        "probes": {"readiness": TCP, "startup": HTTP},
    }
    assert merge(base, over) == (merged or {name: expected[name] for name in base})


@pytest.mark.parametrize(
    ("kind", "create", "change"),
    [
        (UNIT, CreateUnit, UnitChange),
        (FUNCTION, CreateFunction, FunctionChange),
        (STORAGE, CreateStorage, StorageChange),
        (POOL, CreateStockPool, ChangeStockPool),
    ],
)
def test_every_field_of_a_create_request_has_its_place_in_an_update(
    kind: Kind, create: type[Value], change: type[Value]
) -> None:
    def fields(model: type[Value]) -> set[str]:
        return {info.alias or name for name, info in model.model_fields.items()}

    assert fields(create) == {"name"} | kind.fixed | kind.at_creation | fields(change)


@pytest.mark.parametrize(
    ("group", "path", "view", "request_", "change"),
    [
        (
            "units",
            "/gpu-units",
            views.unit(ssh={"enabled": True, "username": "me", "hasToken": True}),
            {
                "name": "demo",
                "specName": "host.1",
                "image": "new",
                "stockName": "host-7",
                "namespace": None,
                "template": {"args": ["-m", "other"], "probes": {"readiness": {"tcp": {"port": "http"}}}},
                "ssh": {"username": "you"},
            },
            {
                "image": "new",
                "template": {
                    **views.unit()["template"],
                    "args": ["-m", "other"],
                    "probes": {"readiness": {"tcp": {"port": "http"}}},
                },
                "ssh": {"enabled": True, "username": "you"},
            },
        ),
        (
            "functions",
            "/serverless/functions",
            views.function("demo"),
            {"name": "demo", "specName": "host.1", "image": "new", "maxWorkers": 9, "template": {"args": ["x"]}},
            {"image": "new", "maxWorkers": 9, "template": {**views.function()["template"], "args": ["x"]}},
        ),
        (
            "storages",
            "/gpu-storages",
            views.storage("demo", prepare={"fromImage": "fill", "command": ["fill"], "args": []}),
            {"name": "demo", "size": "20Gi", "prepare": {"fromImage": "fill", "command": ["fill"]}, "retain": True},
            {"size": "20Gi", "retain": True},
        ),
        (
            "pools",
            "/operator/stockpools",
            views.pool("demo"),
            {"name": "demo", "specName": "t4.1", "memory": "16Gi", "gpu": 1, "replicas": 5, "replenish": "Never"},
            {"replicas": 5, "replenish": "Never"},
        ),
    ],
)
def test_a_file_that_created_an_object_updates_it(
    api: ApiServer, shell: Shell, tmp_path: Path, group: str, path: str, view: Json, request_: Json, change: Json
) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"operationID": "op-1", **request_}))
    api.on("POST", path, data(views.job() if group == "pools" else view, 201))
    api.on("GET", f"{path}/demo", data(view))
    api.on("PUT", f"{path}/demo", data(view))
    required = ("--image", "x") if group in ("units", "functions") else ()

    created = shell.run(group, "create", "demo", "--file", str(file), *required)
    updated = shell.run(group, "update", "demo", "--file", str(file))

    assert (created.exit_code, updated.exit_code) == (0, 0), created.output + updated.output
    assert api.asked("POST", path)[0].body["operationID"] == "op-1"
    assert api.asked("PUT", f"{path}/demo")[0].body == change


@pytest.mark.parametrize(
    ("words", "content", "says"),
    [
        ("units update demo", {"specName": "g9.9", "image": "x"}, "specName 'g9.9' differs from the unit's"),
        ("units update demo", {"name": "other", "image": "x"}, "it names 'other', not 'demo'"),
        ("units update demo", {"operationID": "op-1", "specName": "host.1"}, "say what to change of the unit"),
        ("storages update demo", {"size": "1Ti", "prepare": {"fromStorageName": "b"}}, "prepare {"),
        ("pools create --replicas 1", {"image": "x"}, "--spec"),
    ],
)
def test_a_file_that_asks_for_what_cannot_be_is_refused_before_anything_is_changed(
    api: ApiServer, shell: Shell, words: str, content: Json, says: str
) -> None:
    api.on("GET", "/gpu-units/demo", data(views.unit()))
    api.on("GET", "/gpu-storages/demo", data(views.storage("demo")))

    result = shell.run(*words.split(), "--file", "-", stdin=json.dumps(content))

    assert result.exit_code == 2
    assert says in unwrapped(result.stderr)
    assert {question.method for question in api.questions} <= {"GET"}


def test_options_and_file_are_merged_alike_for_create_and_update(api: ApiServer, shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "storage.json"
    file.write_text('{"size": "10Gi", "prepare": {"fromImage": "fill", "command": ["fill"]}}')
    api.on("POST", "/gpu-storages", data(views.storage(), 201))

    shell.run("storages", "create", "weights", "--file", str(file), "--arg=--all", "--operation-id", "op-1")

    assert api.questions[0].body == {
        "operationID": "op-1",
        "name": "weights",
        "size": "10Gi",
        "prepare": {"fromImage": "fill", "command": ["fill"], "args": ["--all"]},
    }


def test_a_file_is_utf_8_whatever_the_locale_says(api: ApiServer, shell: Shell, tmp_path: Path) -> None:
    api.on("POST", "/gpu-units", data(views.unit(), 201))
    file = tmp_path / "unit.json"
    file.write_bytes('{"specName": "x", "image": "x", "template": {"args": ["grüße"]}}'.encode())

    shell.run("units", "create", "demo", "--file", str(file))
    file.write_bytes(b'{"image": "\xff"}')

    assert api.questions[0].body["template"]["args"] == ["grüße"]
    assert "is not JSON" in unwrapped(shell.run("units", "create", "demo", "--file", str(file)).stderr)


@pytest.mark.parametrize(
    ("text", "probe"),
    [
        ("http:web", {"http": {"port": "web"}}),
        ("http:web/healthz", {"http": {"port": "web", "path": "/healthz"}}),
        ("http:web/", {"http": {"port": "web", "path": "/"}}),
        ("http:web/a?b=c,period=1", {"http": {"port": "web", "path": "/a?b=c"}, "periodSeconds": 1}),
        (
            "tcp:web,delay=5,period=2,timeout=3,failures=30",
            {
                **TCP,
                "initialDelaySeconds": 5,
                "periodSeconds": 2,
                "timeoutSeconds": 3,
                "failureThreshold": 30,
            },
        ),
        ("exec:test -e '/a b',c", {"command": ["test", "-e", "/a b,c"]}),
        ("exec:true,failures=1", {"command": ["true"], "failureThreshold": 1}),
        ("none", None),
    ],
)
def test_a_probe_is_read_from_an_option(text: str, probe: Json | None) -> None:
    assert parse_probe("readiness", text) == probe
    assert probe is None or merge(Probe.model_validate(probe).to_json(), probe) == Probe.model_validate(probe).to_json()


@pytest.mark.parametrize(
    "text",
    [
        *("", "web", "grpc:web", "http:", "http:8080", "http:/x", "tcp:web/x", "tcp:web,every=1", "http:web/a,b"),
        *("exec:", "exec:'", "tcp:web,period=", "tcp:web,period=-1"),
    ],
)
def test_what_is_no_probe_is_refused_with_the_option(text: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        parse_probe("liveness", text)
    assert caught.value.param_hint == "--liveness-probe"


def test_probes_are_given_replaced_and_removed_on_the_command_line(api: ApiServer, shell: Shell) -> None:
    probes = {"readiness": HTTP, "liveness": {"command": ["true"]}}
    before = views.unit(template={**views.unit()["template"], "probes": probes})
    api.on("POST", "/gpu-units", data(views.unit(), 201))
    api.on("GET", "/gpu-units/demo", data(before))
    api.on("PUT", "/gpu-units/demo", data(before))

    shell.run(
        *("units", "create", "demo", "--spec", "host.1", "--image", "x", "--port", "web=8080"),
        *("--readiness-probe", "tcp:web", "--startup-probe", "exec:true"),
    )
    shell.run("units", "update", "demo", "--readiness-probe", "tcp:web,period=1")
    shell.run("units", "update", "demo", "--liveness-probe", "none")

    assert api.asked("POST", "/gpu-units")[0].body["template"] == {
        "ports": [{"name": "web", "port": 8080}],
        "probes": {"readiness": TCP, "startup": {"command": ["true"]}},
    }
    replaced, removed = (question.body for question in api.asked("PUT", "/gpu-units/demo"))
    template = before["template"]
    assert replaced == {"template": {**template, "probes": {**probes, "readiness": {**TCP, "periodSeconds": 1}}}}
    assert removed == {"template": {**template, "probes": {"readiness": HTTP}}}
