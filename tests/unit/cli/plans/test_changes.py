"""What is read out of a plan: one change per resource, with old and new values, and without secrets."""

from typing import Any

import pytest

from gpu_platform.cli.plans.changes import PropertyChange
from gpu_platform.cli.plans.digest import ABSENT, SECRET, SIGNATURE, parse_path, path_text
from gpu_platform.domain.json_text import Json
from tests.unit.cli.plans.prepared_plans import build_plan_changes, build_step


def properties_of(step: Json) -> list[PropertyChange]:
    (change,) = build_plan_changes(step).listed
    return list(change.properties)


def update(old: Json, new: Json, *, kind: str = "ConfigMap", **fields: Any) -> list[PropertyChange]:
    return properties_of(build_step("update", kind, "x", old=old, new=new, **fields))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("spec.replicas", ("spec", "replicas")),
        ("spec.ports[0].name", ("spec", "ports", 0, "name")),
        ('metadata.labels["a.b/c"]', ("metadata", "labels", "a.b/c")),
        ('["a"].b', ("a", "b")),
        (r'data["say \"hi\""]', ("data", 'say "hi"')),
    ],
)
def test_a_path_is_read_as_pulumi_writes_it(text: str, path: tuple[str | int, ...]) -> None:
    assert parse_path(text) == path
    assert parse_path(path_text(path)) == path


@pytest.mark.parametrize("text", ["a[b", "a..b", "]"])
def test_what_is_no_path_is_shown_as_it_is(text: str) -> None:
    assert parse_path(text) is None
    (change,) = update({"a": 1}, {"a": 2}, detailedDiff={text: {"kind": "update", "inputDiff": True}})
    assert change == PropertyChange(f'["{text}"]', ABSENT, ABSENT)


def test_the_old_value_of_drift_is_what_the_cluster_had() -> None:
    step = build_step(
        "update",
        "ConfigMap",
        "x",
        old={"a": 1},
        new={"a": 1},
        detailedDiff={"a": {"kind": "update", "inputDiff": False}},
    )
    step["oldState"]["outputs"] = {"a": 7}

    assert properties_of(step) == [PropertyChange("a", 7, 1)]


def test_without_details_the_inputs_are_compared() -> None:
    old = {"a": 1, "b": [1, 2], "gone": True, "flag": True}
    new = {"a": 1, "b": [1, 3, 4], "come": None, "flag": 1}

    assert update(old, new) == [
        PropertyChange("b[1]", 2, 3),
        PropertyChange("b[2]", ABSENT, 4),
        PropertyChange("gone", True, ABSENT),
        PropertyChange("flag", True, 1),
        PropertyChange("come", ABSENT, None),
    ]


def test_a_changed_secret_without_details_is_still_a_change() -> None:
    assert update({"data": SECRET}, {"data": SECRET}, diffReasons=["data"]) == [PropertyChange("data", SECRET, SECRET)]


def test_a_reason_to_replace_that_is_no_property_is_told() -> None:
    step = build_step("replace", "ConfigMap", "x", old={"a": 1}, new={"a": 1}, replaceReasons=["provider"])

    assert properties_of(step) == [PropertyChange("provider", ABSENT, ABSENT, replaces=True)]


@pytest.mark.parametrize(
    "hidden", [SECRET, {SIGNATURE: "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "v1:abc"}], ids=["word", "object"]
)
def test_what_is_secret_on_one_side_is_shown_on_neither(hidden: Any) -> None:
    details: Json = {"detailedDiff": {"a.b": {"kind": "update", "inputDiff": True}}}

    assert update({"a": {"b": "plain"}}, {"a": {"b": hidden}}, **details) == [PropertyChange("a.b", SECRET, SECRET)]
    assert update({"a": hidden}, {"a": {"b": "plain"}}, **details) == [PropertyChange("a.b", SECRET, SECRET)]


@pytest.mark.parametrize("field", ["data", "stringData"])
def test_the_content_of_a_secret_is_masked_although_nobody_marked_it(field: str) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}, field: {"key": "cGxhaW4="}}

    assert properties_of(build_step("create", "Secret", "x", new=body)) == [
        PropertyChange(f"{field}.key", ABSENT, SECRET)
    ]
    listed = {"apiVersion": "v1", "kind": "SecretList", "items": [body]}
    assert "cGxhaW4=" not in str(properties_of(build_step("create", "SecretList", "x", new=listed)))


def test_the_copy_that_kubectl_leaves_in_a_secret_is_masked() -> None:
    place = "kubectl.kubernetes.io/last-applied-configuration"
    body = {"kind": "Secret", "metadata": {"name": "x", "annotations": {place: "cGxhaW4="}}}

    assert "cGxhaW4=" not in str(properties_of(build_step("create", "Secret", "x", new=body)))


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        (("replace",), ["replace"]),
        (("create-replacement", "replace", "delete-replaced"), ["replace"]),
        (("create-replacement", "delete-replaced"), ["replace"]),
        (("delete-replaced",), ["delete"]),
        (("update", "delete-replaced"), ["delete", "update"]),
        (("import",), ["import"]),
        (("same", "read", "refresh"), []),
    ],
)
def test_the_steps_of_a_resource_are_one_change(operations: tuple[str, ...], expected: list[str]) -> None:
    steps = [build_step(operation, "ConfigMap", "x", old={"a": 1}, new={"a": 2}) for operation in operations]

    assert [change.operation for change in build_plan_changes(*steps).listed] == expected


def test_what_takes_something_away_comes_first_and_all_is_counted() -> None:
    steps = [
        build_step(operation, "ConfigMap", operation)
        for operation in ("create", "import", "update", "replace", "delete")
    ]
    changes = build_plan_changes(*steps, same=7)

    assert [change.operation for change in changes.listed] == ["delete", "replace", "update", "create", "import"]
    assert changes.counts == {"create": 1, "update": 1, "replace": 1, "delete": 1, "import": 1, "same": 7}


@pytest.mark.parametrize(
    ("inputs", "name"),
    [
        ({"metadata": {"name": "a", "namespace": "n"}}, "n/a"),
        ({"metadata": {"name": "a"}}, "a"),
        ({"name": "release", "namespace": "gpu-operator"}, "gpu-operator/release"),
        ({"metadata": {"name": SECRET}}, "x::y"),
        ({}, "x::y"),
    ],
)
def test_a_resource_is_called_as_the_cluster_calls_it(inputs: Json, name: str) -> None:
    (change,) = build_plan_changes(build_step("create", "ConfigMap", "x::y", new=inputs)).listed

    assert change.name == name
