"""Inputs are made complete, or refused with the field's name; which differences need another object."""

import pytest

from gpu_platform.devcluster.pulumi_kubernetes.inputs import (
    AUTONAMED,
    Naming,
    ObjectType,
    build_inputs,
    build_name,
    build_object_id,
    check_inputs,
    find_refused,
    find_replacing,
    parse_object_id,
    parse_type_token,
)
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeError
from gpu_platform.pulumi_protocol.properties import UNKNOWN, Path
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


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (("v1", "ConfigMap"), ("metadata", "name")),
        (("v1", "ConfigMap"), ("metadata", "namespace")),
        (("v1", "ConfigMap"), ("kind",)),
        (("v1", "ConfigMap"), ("apiVersion",)),
        (("v1", "Secret"), ("type",)),
        (("v1", "Service"), ("spec", "clusterIP")),
        (("v1", "PersistentVolumeClaim"), ("spec", "accessModes", 0)),
        (("apps/v1", "Deployment"), ("spec", "selector", "matchLabels", "app")),
        (("apps/v1", "StatefulSet"), ("spec", "serviceName")),
        (("batch/v1", "Job"), ("spec", "template", "spec", "containers", 0, "image")),
        (("rbac.authorization.k8s.io/v1", "RoleBinding"), ("roleRef", "name")),
        (("storage.k8s.io/v1", "StorageClass"), ("provisioner",)),
        (("scheduling.k8s.io/v1", "PriorityClass"), ("value",)),
    ],
)
def test_what_cannot_be_changed_replaces(kind: tuple[str, str], path: Path) -> None:
    assert find_replacing(ObjectType(*kind), {}, [path, ("metadata", "labels", "a")]) == {path}


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (("v1", "Service"), ("spec", "ports", 0, "port")),
        (("v1", "PersistentVolumeClaim"), ("spec", "resources", "requests", "storage")),
        (("apps/v1", "Deployment"), ("spec", "template", "spec", "containers", 0, "image")),
        (("example.org/v1", "Deployment"), ("spec", "selector")),
    ],
)
def test_what_can_be_changed_does_not_replace(kind: tuple[str, str], path: Path) -> None:
    assert find_replacing(ObjectType(*kind), {}, [path]) == frozenset()


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_changed_content_replaces_unless_the_provider_has_the_kind_as_mutable(kind: str) -> None:
    changed: list[Path] = [("data", "a"), ("immutable",), ("metadata", "labels")]

    assert find_replacing(ObjectType("v1", kind), {}, changed) == {("data", "a")}
    assert find_replacing(ObjectType("v1", kind), {}, changed, frozenset({kind})) == frozenset()


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_the_content_of_what_was_declared_immutable_replaces(kind: str) -> None:
    changed = [("data", "a"), ("immutable",), ("metadata", "labels")]

    mutable = frozenset({kind})
    fixed = {("data", "a"), ("immutable",)}
    assert find_replacing(ObjectType("v1", kind), {"immutable": True}, changed, mutable) == fixed
    assert find_replacing(ObjectType("v1", kind), {"immutable": False}, changed, mutable) == frozenset()


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        ('X "a" is invalid: spec.size: Invalid value: 3: field is immutable', {("spec", "size")}),
        ('X "a" is invalid: spec: Forbidden: updates to X for fields other than y are forbidden', {("spec", "size")}),
        ('X "a" is invalid: [spec.size: Invalid value: 3: Value is immutable, b: Required value]', {("spec", "size")}),
        ('X "a" is invalid: status.x: Forbidden: may not be changed', {("spec", "size"), ("data",)}),
        ('X "a" is invalid: spec.size: Invalid value: 3: must be less than 2', set()),
    ],
)
def test_the_servers_refusal_of_a_dry_run_names_what_replaces(message: str, refused: set[Path]) -> None:
    error = KubeError(422, "Invalid", message)

    assert find_refused(error, [("spec", "size"), ("data",)]) == refused


def test_a_refusal_for_another_reason_does_not_replace() -> None:
    assert find_refused(KubeError(403, "Forbidden", "updates are forbidden"), [("data",)]) == frozenset()
