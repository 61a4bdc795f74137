"""A value of a plan as a short text in one line: JSON, so that `"4"` and `4` differ and no line breaks in it."""

import json
from typing import Any

from gpu_platform.cli.plans.masking import is_secret, is_unknown
from gpu_platform.cli.plans.property_paths import ABSENT

LONGEST_VALUE = 100
LONGEST_NAME = 200
"""Characters. Chosen by feel: two values and a path still fit into a few lines of a table's cell."""


def build_value(value: Any) -> str:
    if value is ABSENT:
        return "–"
    if is_secret(value):
        return str(value)
    if is_unknown(value):
        return "known later"
    return cut(escape_invisible(json.dumps(value, ensure_ascii=False)), LONGEST_VALUE)


def build_name(text: str) -> str:
    """A name is a text without quotes, but nothing in it may break a line either."""
    return cut(escape_invisible(json.dumps(text, ensure_ascii=False)[1:-1]), LONGEST_NAME)


def build_path(text: str) -> str:
    """Already written with quotes where they are needed."""
    return cut(escape_invisible(text), LONGEST_NAME)


def cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def escape_invisible(text: str) -> str:
    """Characters that a reader does not see can make a line read as another one."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
