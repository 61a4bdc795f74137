"""Inputs are made complete, and what cannot be right is refused with the field's name."""

import pytest

from gpu_platform.devcluster.pulumi_kubernetes.inputs import (
    AUTONAMED,
    Naming,
    ObjectType,
    build_inputs,
    build_name,
    build_object_id,
    check_inputs,
    parse_object_id,
    parse_type_token,
)
from gpu_platform.domain.json_text import Json
from gpu_platform.pulumi_protocol.properties import UNKNOWN
from gpu_platform.pulumi_protocol.resource import Failure

CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
NAMING = Naming("settings", b"seed")


def check(news: Json, old: Json | None = None, *, namespaced: bool | None = True, naming: Naming = NAMING) -> Json:
    checked = check_inputs(CONFIG_MAP, build_inputs(CONFIG_MAP, news), old or {}, naming, namespaced, "default")
    assert checked.failures == ()
    return checked.inputs


def refuse(news: Json, token: str = CONFIG_MAP) -> tuple[Failure, ...]:
    return check_inputs(token, build_inputs(token, news), {}, NAMING, True, "default").failures


@pytest.mark.parametrize(
    ("token", "meant"),
    [
        ("kubernetes:core/v1:Secret", ObjectType("v1", "Secret")),
        ("kubernetes:v1:Secret", ObjectType("v1", "Secret")),
        ("kubernetes:apps/v1:Deployment", ObjectType("apps/v1", "Deployment")),
        ("kubernetes:rbac.authorization.k8s.io/v1:Role", ObjectType("rbac.authorization.k8s.io/v1", "Role")),
    ],
)
def test_a_type_token_means_a_kind(token: str, meant: ObjectType) -> None:
    assert parse_type_token(token) == meant


def test_kind_and_namespace_are_filled_in() -> None:
    inputs = check({"metadata": {"name": "a"}, "data": {"x": "1"}})

    assert inputs == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "default"},
        "data": {"x": "1"},
    }


@pytest.mark.parametrize("namespaced", [False, None])
def test_a_kind_without_namespaces_or_not_known_yet_gets_none(namespaced: bool | None) -> None:
    assert "namespace" not in check({"metadata": {"name": "a"}}, namespaced=namespaced)["metadata"]


def test_what_only_the_server_says_is_left_out() -> None:
    inputs = check({"metadata": {"name": "a", "uid": "u", "creationTimestamp": "t"}, "status": {"phase": "x"}})

    assert inputs["metadata"] == {"name": "a", "namespace": "default"}
    assert "status" not in inputs


def test_a_missing_name_is_made_from_the_resources_own_and_the_seed() -> None:
    first, again = check({}), check({})

    assert first == again
    assert first["metadata"]["name"] == build_name(NAMING)
    assert first["metadata"]["name"].startswith("settings-")
    assert len(first["metadata"]["name"]) == len("settings-") + 8
    assert first["metadata"]["annotations"] == {AUTONAMED: "true"}
    assert check({}, naming=Naming("settings", b"other"))["metadata"]["name"] != first["metadata"]["name"]


def test_a_made_up_name_stays_over_updates() -> None:
    first = check({})

    assert check({}, first, naming=Naming("settings", b"other"))["metadata"]["name"] == first["metadata"]["name"]


def test_a_name_that_a_person_gave_before_is_not_taken_over() -> None:
    assert check({}, {"metadata": {"name": "mine"}})["metadata"]["name"] == build_name(NAMING)


def test_a_project_can_propose_names_or_forbid_to_make_them_up() -> None:
    assert check({}, naming=Naming("settings", b"", proposed="p-1"))["metadata"]["name"] == "p-1"
    never = Naming("settings", b"", allowed=False)
    forbidden = check_inputs(CONFIG_MAP, build_inputs(CONFIG_MAP, {}), {}, never, True, "default")
    assert [each.property for each in forbidden.failures] == ["metadata.name"]


def test_unknown_metadata_is_left_alone() -> None:
    assert check({"metadata": UNKNOWN})["metadata"] is UNKNOWN
    assert check({"metadata": {"name": UNKNOWN, "labels": UNKNOWN}})["metadata"]["name"] is UNKNOWN


@pytest.mark.parametrize(
    ("news", "field"),
    [
        ({"metadata": "x"}, "metadata"),
        ({"metadata": {"name": ""}}, "metadata.name"),
        ({"metadata": {"name": "../x"}}, "metadata.name"),
        ({"metadata": {"name": "a", "namespace": 3}}, "metadata.namespace"),
        ({"metadata": {"generateName": "a-"}}, "metadata.generateName"),
        ({"metadata": {"labels": ["a"]}}, "metadata.labels"),
        ({"metadata": {"labels": {"on": True}}}, "metadata.labels.on"),
        ({"metadata": {"annotations": {"a/b": 3}}}, 'metadata.annotations["a/b"]'),
        (
            {"metadata": {"annotations": {"pulumi.com/timeoutSeconds": "soon"}}},
            'metadata.annotations["pulumi.com/timeoutSeconds"]',
        ),
        (
            {"metadata": {"annotations": {"pulumi.com/deletionPropagationPolicy": "never"}}},
            'metadata.annotations["pulumi.com/deletionPropagationPolicy"]',
        ),
        ({"kind": 3}, "kind"),
    ],
)
def test_a_wrong_field_is_named(news: Json, field: str) -> None:
    assert [each.property for each in refuse({"apiVersion": "v1", **news})] == [field]


@pytest.mark.parametrize(
    ("token", "news", "field"),
    [
        ("kubernetes:apps/v1:DeploymentPatch", {"kind": "Deployment"}, "kind"),
        ("kubernetes:core/v1:ConfigMapList", {"kind": "ConfigMapList", "items": []}, "items"),
    ],
)
def test_kinds_that_only_the_sdk_has_are_refused(token: str, news: Json, field: str) -> None:
    assert [each.property for each in refuse(news, token)] == [field]


@pytest.mark.parametrize(
    ("text", "namespaced", "place"),
    [
        ("shop/settings", True, ("shop", "settings")),
        ("settings", True, ("default", "settings")),
        ("shop", False, (None, "shop")),
        ("system:admin", False, (None, "system:admin")),
    ],
)
def test_an_id_names_one_object(text: str, namespaced: bool, place: tuple[str | None, str]) -> None:
    assert parse_object_id(text, namespaced=namespaced, default_namespace="default") == place


def test_an_id_that_names_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="write namespace/name"):
        parse_object_id("a/b/", namespaced=True, default_namespace="default")


def test_ids_are_built_as_they_are_read() -> None:
    assert [build_object_id("shop", "a"), build_object_id(None, "a")] == ["shop/a", "a"]
