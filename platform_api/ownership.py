"""What somebody's own Pulumi program declares is theirs to change, and a worker is its function's."""

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


def refuse_worker(unit: Json) -> None:
    """409 for a unit that a function made: the next pass over that would undo the change."""
    for owner in unit["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner["kind"] == "GPUFunction":
            name = unit["metadata"]["name"]
            raise conflict(
                f"the unit {name!r} cannot be changed: it is a worker of the function {owner['name']!r}: "
                "change the function"
            )
