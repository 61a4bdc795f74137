"""ETags: they change with an object's spec, not with its status."""

from typing import Any

Json = dict[str, Any]


def etag_of(item: Json) -> str:
    return f'"{item["metadata"]["uid"]}.{item["metadata"].get("generation", 1)}"'


def is_matched(if_match: str | None, item: Json) -> bool:
    """Whether the object is still what the caller's `If-Match` says; without one, it is."""
    if if_match is None or if_match.strip() == "*":
        return True
    return etag_of(item) in [each.strip() for each in if_match.split(",")]
