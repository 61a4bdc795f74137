"""A live object seen through the inputs that declared it, and whose object it is."""

import base64

import pytest

from gpu_platform.devcluster.pulumi_kubernetes.state import (
    APPLIED_BY,
    build_body,
    build_imported_inputs,
    field_manager_name,
    is_managed_by,
    observe_inputs,
)
from gpu_platform.domain.json_text import Json

OWNED: Json = {
    "f:spec": {
        "f:containers": {
            'k:{"name":"web"}': {".": {}, "f:image": {}, "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {}}}
        },
        "f:args": {},
    }
}


def build_object(spec: Json) -> Json:
    return {"kind": "Thing", "metadata": {"managedFields": [{"fieldsV1": OWNED}]}, "spec": spec}


def observe(said: Json, live: Json, applied: Json | None) -> Json:
    inputs = {"kind": "Thing", "spec": said}
    seen = observe_inputs(inputs, build_object(live), None if applied is None else build_object(applied))
    spec: Json = seen["spec"]
    return spec


WEB = {"name": "web", "image": "a"}
SIDECAR = {"name": "sidecar", "image": "s"}


@pytest.mark.parametrize(
    ("said", "live", "applied", "seen"),
    [
        pytest.param({"size": 1}, {"size": 1, "default": 2}, None, {"size": 1}, id="defaults are not ours"),
        pytest.param({"size": 1}, {"size": 5}, {"size": 1}, {"size": 5}, id="an edit shows"),
        pytest.param({"cpu": "1000m"}, {"cpu": "1"}, {"cpu": "1"}, {"cpu": "1000m"}, id="the same in other words"),
        pytest.param({"cpu": "1000m"}, {"cpu": "2"}, {"cpu": "1"}, {"cpu": "2"}, id="not the same in other words"),
        pytest.param({"size": 1}, {}, {"size": 1}, {}, id="a removal shows"),
        pytest.param({"hidden": 1}, {}, {}, {"hidden": 1}, id="what the server never shows is as declared"),
        pytest.param({"cpu": "1000m"}, {"cpu": "1"}, None, {"cpu": "1"}, id="without a dry run the live value counts"),
        pytest.param(
            {"containers": [WEB]},
            {"containers": [SIDECAR, {**WEB, "pull": "x"}]},
            None,
            {"containers": [WEB]},
            id="an entry with a key that others add is not ours",
        ),
        pytest.param(
            {"containers": [WEB, SIDECAR]},
            {"containers": [{**SIDECAR, "image": "t"}]},
            {"containers": [SIDECAR, WEB]},
            {"containers": [{**SIDECAR, "image": "t"}]},
            id="entries are found by their keys",
        ),
        pytest.param(
            {"containers": [{**WEB, "ports": [{"containerPort": 80}]}]},
            {"containers": [{**WEB, "ports": [{"containerPort": 80, "protocol": "TCP"}]}]},
            None,
            {"containers": [{**WEB, "ports": [{"containerPort": 80}]}]},
            id="a key with a default may be left out",
        ),
        pytest.param({"args": ["a"]}, {"args": ["a", "b"]}, {"args": ["a"]}, {"args": ["a", "b"]}, id="a plain list"),
        pytest.param({"args": ["a", "b"]}, {"args": ["a", "c"]}, None, {"args": ["a", "c"]}, id="one entry of it"),
    ],
)
def test_observe_inputs(said: Json, live: Json, applied: Json | None, seen: Json) -> None:
    assert observe(said, live, applied) == seen


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(("now", "seen"), [("pw", {"a": "pw"}), ("other", {"a": "other"}), (None, {})])
def test_the_texts_of_a_secret_are_read_from_its_data(now: str | None, seen: Json) -> None:
    live = {"kind": "Secret", "metadata": {}, "data": {} if now is None else {"a": encoded(now)}}

    assert observe_inputs({"stringData": {"a": "pw"}}, live, None)["stringData"] == seen


def test_an_import_takes_all_but_what_only_the_server_says() -> None:
    live = {
        "kind": "ConfigMap",
        "metadata": {
            "name": "a",
            "labels": {"x": "y"},
            "annotations": {APPLIED_BY: "m"},
            "uid": "u",
            "managedFields": [],
            "resourceVersion": "1",
        },
        "data": {"k": "v"},
        "status": {},
    }

    assert build_imported_inputs(live) == {
        "kind": "ConfigMap",
        "metadata": {"name": "a", "labels": {"x": "y"}},
        "data": {"k": "v"},
    }


def test_every_resource_of_a_program_has_a_field_manager_of_its_own() -> None:
    assert field_manager_name("urn:a") == field_manager_name("urn:a") != field_manager_name("urn:b")


def test_an_object_is_ours_when_our_manager_applied_it() -> None:
    live = {"metadata": {"managedFields": [{"manager": "m", "operation": "Apply"}]}}

    assert is_managed_by(live, "m")
    assert not is_managed_by(live, "n")
    assert not is_managed_by({"metadata": {"managedFields": [{"manager": "m", "operation": "Update"}]}}, "m")


def test_what_is_sent_has_a_field_to_own_even_if_the_inputs_have_none() -> None:
    inputs = {"kind": "Namespace", "metadata": {"name": "a", "namespace": "ignored"}}

    assert build_body(inputs, None, "m") == {
        "kind": "Namespace",
        "metadata": {"name": "a", "annotations": {APPLIED_BY: "m"}},
    }


def test_annotations_of_the_inputs_are_sent_too() -> None:
    body = build_body({"metadata": {"name": "a", "annotations": {"x": "y"}}}, "shop", "m")

    assert body["metadata"] == {"name": "a", "namespace": "shop", "annotations": {"x": "y", APPLIED_BY: "m"}}
