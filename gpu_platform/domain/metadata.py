"""What an object carries beside its spec. Either map may be missing, or null."""

from datetime import datetime
from typing import Any

Json = dict[str, Any]


def labels_of(item: Json) -> dict[str, str]:
    return item["metadata"].get("labels") or {}


def annotations_of(item: Json) -> dict[str, str]:
    return item["metadata"].get("annotations") or {}


def find_instant(item: Json, annotation: str) -> datetime | None:
    """None also for a text that says no instant: anybody may edit annotations."""
    try:
        instant = datetime.fromisoformat(annotations_of(item).get(annotation, ""))
    except ValueError:
        return None
    return instant if instant.tzinfo else None
