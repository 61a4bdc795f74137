"""JSON that a person hands in, by a file, a pipe or an option: what cannot be sent on is refused here, in words."""

import json
from typing import Any

from gpu_platform.domain.json_numbers import parse_float, refuse_constant

NESTING_LIMIT = 200
"""Objects and lists inside each other. The API reads no more."""


def parse_json(text: str) -> Any:
    """ValueError says why it is none."""
    try:
        content = json.loads(text, parse_constant=refuse_constant, parse_float=parse_float)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if _is_deeper(content, NESTING_LIMIT):
        raise ValueError("it is nested too deeply")
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("it holds half a character (a lone surrogate)") from None
    return content


def _is_deeper(content: Any, limit: int) -> bool:
    """Level by level: whatever calls itself would end where it looks for the end."""
    level = [content]
    for _ in range(limit):
        level = [child for item in level for child in _list_containers(item)]
        if not level:
            return False
    return True


def _list_containers(item: Any) -> tuple[Any, ...]:
    """Those right inside."""
    children = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    return tuple(child for child in children if isinstance(child, dict | list))
