"""JSON text from callers: bounded before anything is built from it, and read strictly.

Every value of JSON becomes an object of 50 to 200 bytes: 16 MiB of `[[],[],…]` are 5.6 million of them. So the brackets
and commas outside strings are counted first, over the bytes, and stop at the limit:

| text                       | depth | values                                 |
| -------------------------- | ----- | -------------------------------------- |
| `1`, `"a,b[c"`             | 0     | 1                                      |
| `[]`, `{}`                 | 1     | 2: an empty one counts as if it held one |
| `[1, {"a": [2]}]`          | 3     | 5                                      |
| `[[[[…` without an end     | stops at the limit                             |
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
"""A JSON object."""

VALUES = 200_000
"""Of one text. An image of 224 by 224 pixels in three colours has 150,528; as text (base64) it is one value."""

DEPTH = 201
"""Levels of brackets. A payload may have 200, which is what pydantic reads, and the request around it is one more."""

LONGEST_NAME = 100
"""Characters of a name that an error shows."""

TOKENS_PER_VALUE = 4
"""In JSON, a comma, a name, and two brackets or a string. What has more of them is not JSON."""

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+|[\[\]{},]', re.DOTALL)
"""Possessive, and with an end of the text in place of the closing quote: linear, whatever the bytes are."""

_STEPS = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
_SPACES = b" \t\r\n"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

_PAIRED = re.compile(
    rb"(?:[^\\]++|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?!u[dD][89a-fA-F]).)*+", re.DOTALL
)


class JsonBoundsError(ValueError):
    """It has too many values, or they are nested too deeply."""


@dataclass(frozen=True)
class Member:
    """Where a member of an object is in its text: its name, a colon and its value."""

    start: int
    name_end: int
    end: int

    def value(self, text: bytes) -> bytes:
        said = text[self.name_end : self.end].strip(_SPACES)
        if not said.startswith(b":"):
            raise ValueError(f"':' is missing at byte {self.name_end}")
        return said[1:].strip(_SPACES)


def check_bounds(text: bytes, values: int = VALUES, levels: int = DEPTH) -> None:
    """ValueError where more would be built from the text than `values`, it has more `levels` of brackets, or they do
    not close."""
    depth, counted = 0, 1
    for number, token in enumerate(_TOKEN.finditer(text)):
        mark = token.group()
        if mark == b",":
            counted += 1
            if depth == 0:
                raise ValueError(f"a comma is outside of brackets at byte {token.start()}")
        elif mark in (b"[", b"{"):
            counted += 1
            depth += 1
            if depth > levels:
                raise JsonBoundsError(f"is nested deeper than {levels} levels")
        elif mark in (b"]", b"}"):
            depth -= 1
            if depth < 0:
                raise ValueError(f"a bracket closes at byte {token.start()} that was not opened")
        if counted > values or number > TOKENS_PER_VALUE * values:
            raise JsonBoundsError(
                f"has more than {values} values; send large data as text, such as base64, or by a storage"
            )
    if depth:
        raise ValueError("it ends before its brackets are closed")


def find_member(text: bytes, name: str) -> Member | None:
    """The member of this name, of a text within bounds; None if it has none. Its value may still be no JSON."""
    found = list(_members(text, name))
    if len(found) > 1:
        raise ValueError(f"{name!r} is there twice")
    return found[0] if found else None


def parse_json(text: bytes) -> Any:
    """ValueError for what is not JSON in UTF-8, has a name twice, or has a number or a character that does not exist.

    Numbers and objects pass through Python code, so that another thread gets its turn meanwhile.
    """
    if _SURROGATE.search(text) and not _PAIRED.fullmatch(text):
        raise ValueError("it has one half of a surrogate pair, which is no character")
    return json.loads(
        text.decode(),
        object_pairs_hook=_refuse_repeated,
        parse_constant=refuse_constant,
        parse_float=parse_float,
        parse_int=_parse_int,
    )


def encode_canonical(value: Any) -> Iterator[str]:
    """The one text of a value, in parts: keys in order, no spaces, ASCII. In parts, no large copy of it is made, and
    another thread gets its turn in between."""
    return json.JSONEncoder(sort_keys=True, separators=(",", ":")).iterencode(value)


def _members(text: bytes, name: str) -> Iterator[Member]:
    """Those of the outermost object that have this name."""
    depth, previous = 0, b""
    begin: re.Match[bytes] | None = None
    for token in _TOKEN.finditer(text):
        mark = token.group()
        depth += _STEPS.get(mark, 0)
        if depth == 1 and mark.startswith(b'"'):
            begin = token if previous in (b"{", b",") and _is_name(mark, name) else begin
        elif begin is not None and (depth == 0 or (depth == 1 and mark == b",")):
            yield Member(begin.start(), begin.end(), token.start())
            begin = None
        previous = mark


def _is_name(mark: bytes, name: str) -> bool:
    if b"\\" not in mark:
        return mark[1:-1] == name.encode()
    try:
        return bool(len(mark) <= len(r"\u0000") * len(name) + 2 and json.loads(mark) == name)
    except ValueError:
        return False


def _parse_int(text: str) -> int:
    return int(text)


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name[:LONGEST_NAME]!r} is there twice")
        found[name] = value
    return found


def refuse_constant(word: str) -> None:
    """NaN and the infinities."""
    raise ValueError(f"{word} is not a number that JSON knows")


def parse_float(text: str) -> float:
    """1e999 is JSON, and no number that can be handed on."""
    number = float(text)
    if math.isinf(number):
        refuse_constant(text)
    return number
