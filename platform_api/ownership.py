"""What somebody's own Pulumi program declares is theirs to change."""

from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.metadata import annotations_of
from platform_api.http.errors import conflict

Json = dict[str, Any]


def refuse_owned(item: Json, what: str) -> None:
    """409 for an object of a stack; `what` it is, in words."""
    if owner := annotations_of(item).get(names.ANNOTATION_OWNER_STACK):
        name = item["metadata"]["name"]
        raise conflict(f"the {what} {name!r} belongs to the Pulumi stack {owner}; change it there")
