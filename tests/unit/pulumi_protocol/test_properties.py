"""Pulumi's wire format and plain JSON: nothing is lost on the way there and back."""

import pytest

from gpu_platform.pulumi_protocol.properties import (
    SECRET_SIGNATURE,
    SIGNATURE_KEY,
    UNKNOWN,
    UNKNOWN_TEXT,
    Path,
    Properties,
    contains_unknown,
    decode_properties,
    encode_properties,
    find_moved_secrets,
    path_text,
    without_inner,
    without_nulls,
)


def test_secrets_and_unknowns_survive_the_way_there_and_back() -> None:
    said = Properties(
        {"data": {"password": "x", "later": UNKNOWN}, "replicas": 3, "share": 0.5, "list": [{"value": "y"}]},
        frozenset({("data", "password"), ("list", 0, "value")}),
    )

    assert decode_properties(encode_properties(said)) == said


def test_a_secret_is_wrapped_on_the_wire_and_an_unknown_is_its_text() -> None:
    struct = encode_properties(Properties({"a": "x", "b": UNKNOWN}, frozenset({("a",)})))

    assert dict(struct["a"]) == {SIGNATURE_KEY: SECRET_SIGNATURE, "value": "x"}
    assert struct["b"] == UNKNOWN_TEXT


def test_whole_numbers_stay_whole() -> None:
    decoded = decode_properties(encode_properties(Properties({"replicas": 3, "share": 0.25, "on": True}))).tree

    assert {name: type(each) for name, each in decoded.items()} == {"replicas": int, "share": float, "on": bool}


@pytest.mark.parametrize(("tree", "unknown"), [({"a": [{"b": UNKNOWN}]}, True), ({"a": [{"b": None}]}, False)])
def test_an_unknown_is_found_however_deep(tree: dict[str, object], unknown: bool) -> None:
    assert contains_unknown(tree) is unknown


def test_what_was_not_said_is_left_out_of_maps_and_kept_in_lists() -> None:
    assert without_nulls({"a": None, "b": [None, {"c": None}]}) == {"b": [None, {}]}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("spec", "replicas"), "spec.replicas"),
        (("spec", "ports", 0, "name"), "spec.ports[0].name"),
        (("metadata", "labels", "app.kubernetes.io/name"), 'metadata.labels["app.kubernetes.io/name"]'),
        (("data", 'a"b'), 'data["a\\"b"]'),
        (("tls.crt",), '["tls.crt"]'),
    ],
)
def test_a_path_is_written_as_pulumi_reads_it(path: Path, text: str) -> None:
    assert path_text(path) == text


def test_a_secret_that_moved_within_a_list_makes_the_whole_list_secret() -> None:
    source = {"env": [{"name": "a", "value": "s"}, {"name": "b", "value": "t"}]}
    marked = frozenset({("env", 1, "value")})

    assert find_moved_secrets(marked, source, source) == marked
    assert find_moved_secrets(marked, source, {"env": source["env"][1:]}) == {("env",)}


def test_a_secret_in_a_secret_is_marked_once() -> None:
    assert without_inner(frozenset({("data",), ("data", "a"), ("x", "y")})) == {("data",), ("x", "y")}
