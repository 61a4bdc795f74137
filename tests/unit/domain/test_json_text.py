"""JSON text: counted before it is built, cut without being built, and read strictly."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_platform.domain.json_text import (
    DEPTH,
    VALUES,
    JsonBoundsError,
    check_bounds,
    encode_canonical,
    find_member,
    parse_json,
)

MEGABYTE = 1 << 20
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)
some_examples = settings(max_examples=200, deadline=None)


def count(value: Any) -> int:
    """As the module's table says: an empty list counts as if it held one value."""
    inside = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + (max(1, sum(map(count, inside))) if isinstance(value, dict | list) else 0)


@pytest.mark.parametrize(
    ("text", "values"),
    [(b'"a,b[c"', 1), (b"[]", 2), (b"{}", 2), (b'[1, {"a": [2]}]', 5), (rb'["\",\"[", "\\"]', 3)],
    ids=str,
)
def test_values_are_counted_outside_strings(text: bytes, values: int) -> None:
    check_bounds(text, values)
    with pytest.raises(JsonBoundsError, match=f"has more than {values - 1} values"):
        check_bounds(text, values - 1)


@some_examples
@given(JSON, st.sampled_from([None, 1]), st.booleans())
def test_the_count_is_that_of_the_parsed_values(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    check_bounds(text, count(value))
    if count(value) > 1:
        with pytest.raises(JsonBoundsError):
            check_bounds(text, count(value) - 1)
    assert parse_json(text) == value


def test_depth_is_bounded() -> None:
    check_bounds(b"[" * DEPTH + b"]" * DEPTH)
    with pytest.raises(JsonBoundsError, match=f"is nested deeper than {DEPTH} levels"):
        check_bounds(b"[" * (DEPTH + 1) + b"]" * (DEPTH + 1))


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"[]," * MEGABYTE + b"1]",
        b"[" + b"{}," * MEGABYTE + b"1]",
        b"[" + b'"",' * MEGABYTE + b"1]",
        b"{" + b'"":[],' * MEGABYTE + b'"":0}',
        b"[]" * MEGABYTE,
        b'"' * MEGABYTE * 4,
        b"[" * MEGABYTE,
        b'{"a":' * MEGABYTE,
    ],
    ids=["lists", "objects", "texts", "members", "roots", "quotes", "deep", "deep-objects"],
)
def test_a_bomb_is_refused(text: bytes) -> None:
    with pytest.raises(JsonBoundsError):
        check_bounds(text)


def test_a_text_without_an_end_is_looked_at_once() -> None:
    """By a scan that began again at every quote this would take hours."""
    check_bounds(b'"' + rb"\"" * MEGABYTE)
    with pytest.raises(ValueError, match="ends before"):
        check_bounds(b'["' + rb"\"" * MEGABYTE)


@pytest.mark.parametrize("text", [b"]", b"[]]", b"[1", b'{"a":1', b"1,2", b'1},"b":{', b'[],"b":1'], ids=str)
def test_what_is_not_one_value_by_its_brackets_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"bracket|comma"):
        check_bounds(text)


@some_examples
@given(st.dictionaries(st.text(max_size=8) | st.just("payload"), JSON, max_size=5), st.sampled_from([None, 1]))
def test_a_member_is_cut_out_of_its_text(value: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(value, indent=indent).encode()
    member = find_member(text, "payload")

    assert (member is not None) == ("payload" in value)
    if member is not None:
        assert parse_json(member.value(text)) == value["payload"]
        rest = text[: member.start] + b'"payload":null' + text[member.end :]
        assert json.loads(rest) == {**value, "payload": None}


def test_a_name_is_found_also_if_it_is_escaped_and_only_in_the_outermost_object() -> None:
    text = rb'{"a": {"payload": 1}, "b": "payload", "c": ["payload"], "pay\u006coad": [2]}'
    member = find_member(text, "payload")

    assert member is not None
    assert member.value(text) == b"[2]"
    assert find_member(b'{"a": "payload"}', "payload") is None
    with pytest.raises(ValueError, match="'payload' is there twice"):
        find_member(rb'{"payload": 1, "pay\u006coad": 2}', "payload")
    assert find_member(rb'{"\q": 1}', "payload") is None


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"[1 2]", b"{1:2}", b"[1}", b"NaN", b"-Infinity", b"1e999", b"\xff", b'"\x00"', b"\xef\xbb\xbf1"),
        *(rb'"\ud800"', rb'"\udc00"', rb'"\udc00\ud800"', rb'"\ud800 \udc00"', rb'"\\\ud800"', b'{"a":1,"a":1}'),
        "[1]".encode("utf-16"),
    ],
    ids=str,
)
def test_what_is_not_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_pairs_of_surrogates_and_escaped_backslashes_are_text() -> None:
    assert parse_json(rb'["\ud83d\uDE00", "\\ud800", "\\\\\ud83d\ude00"]') == ["😀", r"\ud800", "\\\\😀"]


@some_examples
@given(JSON)
def test_the_canonical_text_is_that_of_the_standard_library(value: Any) -> None:
    assert "".join(encode_canonical(value)) == json.dumps(value, sort_keys=True, separators=(",", ":"))


def test_the_limits_are_those_of_the_documents() -> None:
    assert (VALUES, DEPTH) == (200_000, 201)
