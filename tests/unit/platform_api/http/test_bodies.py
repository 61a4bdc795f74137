"""Strict decoding: what a caller sent is what the schema says, or the answer names the place; never anything else."""

import json
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpu_platform.api_models.units import CreateUnit
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import request_hash
from gpu_platform.domain.units import UnitChange
from gpu_platform.domain.value import Value
from platform_api.http.bodies import DETAILS_LIMIT, decode_body
from platform_api.http.errors import ApiError

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
PORT_NAMES = st.from_regex(r"[a-z][a-z0-9]{0,6}(-[a-z0-9]{1,4})?", fullmatch=True)
PORTS = st.fixed_dictionaries(
    {"name": PORT_NAMES, "port": st.integers(1, 65_535)},
    optional={"protocol": st.sampled_from(["TCP", "UDP", "SCTP"])},
)
ENVS = st.fixed_dictionaries(
    {"name": st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,9}", fullmatch=True)}, optional={"value": WORDS}
)
PROBES = st.fixed_dictionaries(
    {},
    optional={
        "http": st.fixed_dictionaries({"port": PORT_NAMES}, optional={"path": WORDS}),
        "command": st.lists(WORDS, min_size=1, max_size=3),
        "initialDelaySeconds": st.integers(0, 3_600),
        "periodSeconds": st.integers(1, 3_600),
        "timeoutSeconds": st.integers(1, 300),
        "failureThreshold": st.integers(1, 1_000),
    },
)
TEMPLATES = st.fixed_dictionaries(
    {},
    optional={
        "command": st.lists(WORDS, max_size=3),
        "args": st.lists(WORDS, max_size=3),
        "envs": st.lists(ENVS, max_size=3),
        "ports": st.lists(PORTS, max_size=3),
        "probes": st.fixed_dictionaries({}, optional={"startup": PROBES, "readiness": PROBES, "liveness": PROBES}),
    },
)
ACCESSES = st.fixed_dictionaries(
    {}, optional={"primaryPort": PORT_NAMES, "scheme": st.sampled_from(["http", "https", "tcp"])}
)
IMAGES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
REQUESTS = st.fixed_dictionaries(
    {
        "operationID": st.from_regex(r"[!-~]([ -~]{0,20}[!-~])?", fullmatch=True),
        "name": LABELS,
        "specName": LABELS,
        "image": IMAGES,
    },
    optional={
        "template": TEMPLATES,
        "access": ACCESSES,
        "namespace": LABELS,
        "stockNamespace": LABELS,
        "stockName": LABELS,
    },
)
CHANGES = st.fixed_dictionaries({}, optional={"image": IMAGES, "template": TEMPLATES, "access": ACCESSES})

REQUEST: Json = {
    "operationID": "op-1",
    "name": "train",
    "specName": "g1.1",
    "image": "example/train",
    "template": {
        "command": ["run"],
        "args": ["fast"],
        "envs": [{"name": "A", "value": "1"}],
        "ports": [{"name": "web", "port": 80, "protocol": "TCP"}],
        "probes": {"readiness": {"http": {"path": "/", "port": "web"}, "periodSeconds": 5}},
    },
    "access": {"primaryPort": "web", "scheme": "http"},
    "namespace": "runtime-instance",
    "stockNamespace": "runtime-stock",
    "stockName": "warm-1",
}
"""Every field that a request can have, in one."""

WRONG_FOR_ALL = [-1, 1.5, True, ["x", 7], {"unknown": 1}]
"""No field takes any of these."""


some_examples = settings(max_examples=40, deadline=None)


def encode(body: Any) -> bytes:
    return json.dumps(body).encode()


def refused(model: type[Value], body: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        decode_body(model, body)
    error = caught.value
    assert (error.status, error.code) == (400, "invalid_request")
    assert error.details
    assert error.message
    json.dumps([detail.to_json() for detail in error.details]).encode()
    return error


def status_of(body: bytes) -> int:
    try:
        decode_body(UnitChange, body)
    except ApiError as error:
        return error.status
    return 200


def fields_of(error: ApiError) -> set[str]:
    return {detail.field for detail in error.details}


def places(node: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Of every value in the document but the whole."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [place for key, value in items for place in [(*path, key), *places(value, (*path, key))]]


def shown(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def changed(path: tuple[str | int, ...], value: Any) -> Json:
    document = json.loads(encode(REQUEST))
    parent = document
    for part in path[:-1]:
        parent = parent[part]
    parent[path[-1]] = value
    return dict(document)


@some_examples
@given(REQUESTS)
def test_a_valid_request_is_read_as_it_was_said(body: Json) -> None:
    request = decode_body(CreateUnit, encode(body))
    assert decode_body(CreateUnit, encode(request.to_json())) == request
    for key in ("operationID", "name", "specName", "image"):
        assert request.to_json()[key] == body[key]


@some_examples
@given(CHANGES)
def test_a_valid_change_is_read_as_it_was_said(body: Json) -> None:
    change = decode_body(UnitChange, encode(body))
    assert decode_body(UnitChange, encode(change.to_json())) == change
    assert set(change.to_json()) == set(body)


@some_examples
@given(REQUESTS, st.randoms())
def test_the_order_of_keys_and_spaces_make_no_other_request(body: Json, chance: Any) -> None:
    def shuffled(node: Any) -> Any:
        if isinstance(node, dict):
            items = [(key, shuffled(value)) for key, value in node.items()]
            chance.shuffle(items)
            return dict(items)
        return [shuffled(each) for each in node] if isinstance(node, list) else node

    one = decode_body(CreateUnit, encode(body)).to_request()
    other = decode_body(CreateUnit, json.dumps(shuffled(body), indent=3).encode()).to_request()
    assert request_hash(one) == request_hash(other)


@some_examples
@given(REQUESTS)
def test_unsaid_defaults_make_no_other_request(body: Json) -> None:
    request = decode_body(CreateUnit, encode(body))
    with_defaults = decode_body(CreateUnit, encode(request.to_json()))
    assert request_hash(request.to_request()) == request_hash(with_defaults.to_request())


@pytest.mark.parametrize("path", places(REQUEST), ids=shown)
@pytest.mark.parametrize("wrong", WRONG_FOR_ALL, ids=repr)
def test_a_value_of_the_wrong_kind_is_refused_by_its_place(path: tuple[str | int, ...], wrong: Any) -> None:
    error = refused(CreateUnit, encode(changed(path, wrong)))
    assert any(field.startswith(shown(path)) for field in fields_of(error)), fields_of(error)


@pytest.mark.parametrize("path", [path for path in places(REQUEST) if isinstance(path[-1], str)], ids=shown)
def test_an_unknown_field_is_refused_by_its_place_wherever_it_stands(path: tuple[str | int, ...]) -> None:
    beside = (*path[:-1], "unknown")
    error = refused(CreateUnit, encode(changed(beside, 1)))
    assert fields_of(error) == {shown(beside)}
    assert "is not a field that is known here" in error.message


@pytest.mark.parametrize("key", ["operationID", "name", "specName", "image"])
def test_a_missing_field_is_named(key: str) -> None:
    error = refused(CreateUnit, encode({name: value for name, value in REQUEST.items() if name != key}))
    assert error.message == f"{key}: is required"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"operation_id": "x"}, "operation_id"),
        ({"operationId": "x"}, "operationId"),
        ({"spec_name": "x"}, "spec_name"),
        ({"Name": "x"}, "Name"),
    ],
)
def test_a_name_is_the_one_of_the_schema_and_no_other_spelling(body: Json, field: str) -> None:
    assert field in fields_of(refused(CreateUnit, encode({**REQUEST, **body})))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("operationID", ""),
        ("operationID", " x"),
        ("operationID", "x "),
        ("operationID", "x\n"),
        ("operationID", "é"),
        ("operationID", "x" * 201),
        ("name", "x" * 41),
        ("specName", ""),
        ("specName", "x" * 64),
        ("image", ""),
        ("image", "x" * 1_001),
        ("stockName", "x" * 64),
    ],
)
def test_texts_have_their_limits(field: str, value: str) -> None:
    assert fields_of(refused(CreateUnit, encode({**REQUEST, field: value}))) == {field}


def test_only_so_many_fields_are_named() -> None:
    error = refused(CreateUnit, encode({**REQUEST, **{f"unknown{number}": 1 for number in range(100)}}))
    assert len(error.details) == DETAILS_LIMIT


def nested(depth: int) -> bytes:
    return b'{"template":' + b"[" * depth + b"]" * depth + b"}"


NOT_JSON = {
    "nothing": b"",
    "half of it": encode(REQUEST)[:-1],
    "two of them": encode(REQUEST) * 2,
    "single quotes": b"{'name': 'x'}",
    "a comment": b'{} // {"name": 1}',
    "a list": b"[]",
    "a text": b'"text"',
    "null": b"null",
    "a number": b"7",
    "NaN": b'{"image": NaN}',
    "Infinity": b'{"image": Infinity}',
    "minus Infinity": b'{"image": -Infinity}',
    "NaN in a list": b'{"template": {"ports": [{"name": "web", "port": NaN}]}}',
    "a key twice": b'{"image": "a", "image": "a"}',
    "a key twice, spelled differently": b'{"image": "a", "im\\u0061ge": "b"}',
    "a key twice, deep inside": b'{"template": {"ports": [{"name": "a", "name": "b", "port": 1}]}}',
    "a lone surrogate twice": b'{"\\ud800": 1, "\\ud800": 2}',
    "UTF-8 with a byte order mark": b"\xef\xbb\xbf" + encode({"image": "x"}),
    "UTF-16": json.dumps({"image": "x"}).encode("utf-16"),
    "UTF-16 without a mark": json.dumps({"image": "x"}).encode("utf-16-le"),
    "UTF-32": json.dumps({"image": "x"}).encode("utf-32"),
    "Latin-1": '{"image": "é"}'.encode("latin-1"),
    "an overlong byte": b'{"image": "\xc0\xaf"}',
    "a lone surrogate": b'{"image": "\\ud800"}',
    "a lone surrogate as bytes": b'{"image": "\xed\xa0\x80"}',
    "a lone surrogate as a key": b'{"\\udfff": 1}',
    "a control character": b'{"image": "\x00"}',
    "nested deeply": nested(500),
    "nested very deeply": nested(50_000),
    "an unclosed nest": b"[" * 100_000,
    "objects nested very deeply": b'{"template":' * 20_000,
    "a number with too many digits": b'{"template": {"ports": [{"name": "a", "port": ' + b"9" * 5_000 + b"}]}}",
    "a number beyond 64 bits": b'{"template": {"ports": [{"name": "a", "port": 99999999999999999999999}]}}',
    "a number beyond floats": b'{"template": {"ports": [{"name": "a", "port": 1e999}]}}',
    "a whole float": b'{"template": {"ports": [{"name": "a", "port": 80.0}]}}',
    "a number as text": b'{"template": {"ports": [{"name": "a", "port": "80"}]}}',
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON)
@pytest.mark.parametrize("model", [CreateUnit, UnitChange])
def test_what_is_not_strict_json_of_the_schema_is_a_400_and_nothing_else(model: type[Value], body: bytes) -> None:
    refused(model, body)


@some_examples
@given(st.binary(max_size=64))
@example(b"\xff\xfe{\x00}\x00")
@example(b'"\\')
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    assert status_of(body) in (200, 400)


@some_examples
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | WORDS, st.lists, max_leaves=5))
def test_any_json_in_any_field_is_read_or_refused(value: Any) -> None:
    for key in ("image", "template", "access", "unknown"):
        assert status_of(encode({key: value})) in (200, 400)


def test_a_key_that_is_there_twice_is_found_quickly_among_many() -> None:
    keys = [f'"{number:x}":1' for number in range(13_000)]
    body = ("{" + ",".join([*keys, keys[-1]]) + "}").encode()
    assert len(body) < 200_000
    began_at = time.process_time()
    assert "'32c7' is there twice" in refused(UnitChange, body).message
    assert time.process_time() - began_at < 0.5
