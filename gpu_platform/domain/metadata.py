"""What an object carries beside its spec. Either map may be missing, or null."""

from typing import Any

Json = dict[str, Any]


def labels_of(item: Json) -> dict[str, str]:
    return item["metadata"].get("labels") or {}


def annotations_of(item: Json) -> dict[str, str]:
    return item["metadata"].get("annotations") or {}
