"""The JSON of the API server's answers. Where a schema allows any content, one object in a list can be nested more
deeply than Python's parser follows; that must not hide all others from us."""

import json
import logging
import re
from typing import Any

log = logging.getLogger(__name__)

ANSWER_DEPTH = 100
"""Levels, those of the list around an object included. Our deepest schema has 20."""

_TOKENS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]|[^"\[\]{}]++', re.DOTALL)
"""Possessive: never tries a character twice."""


def parse_answer(text: str | bytes) -> Any:
    """Returns the JSON of an answer; with null in the place of what is deeper than `ANSWER_DEPTH`, if the parser cannot
    follow it."""
    try:
        return json.loads(text)
    except RecursionError:
        log.warning("answer.too_deep", extra={"depth": ANSWER_DEPTH, "bytes": len(text)})
        return json.loads(cut_deep(text if isinstance(text, str) else text.decode(), ANSWER_DEPTH))


def cut_deep(text: str, depth: int) -> str:
    """Returns the JSON text with null in the place of all arrays and objects that are deeper than this.

    | text, for depth 1      | →                    |
    | ---------------------- | -------------------- |
    | `{"a": [1]}`           | `{"a": null}`        |
    | `[1, "[", {"b": {}}]`  | `[1, "[", null]`     |
    | `{"a": 1}`             | the same             |
    """
    kept: list[str] = []
    level = 0
    for token in _TOKENS.findall(text):
        if token in ("[", "{"):
            level += 1
            if level == depth + 1:
                kept.append("null")
        if level <= depth:
            kept.append(token)
        if token in ("]", "}"):
            level -= 1
    return "".join(kept)
