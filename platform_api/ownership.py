"""What somebody's own Pulumi program declares is theirs to change, and a worker is its function's."""

from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.metadata import annotations_of, controller_of
from platform_api.http.errors import conflict

Json = dict[str, Any]


def refuse_owned(item: Json, what: str) -> None:
    """409 for an object of a stack; `what` it is, in words."""
    if owner := annotations_of(item).get(names.ANNOTATION_OWNER_STACK):
        name = item["metadata"]["name"]
        raise conflict(f"the {what} {name!r} belongs to the Pulumi stack {owner}; change it there")


def refuse_worker(unit: Json) -> None:
    """409 for a unit that a function made: the next pass over that would undo the change."""
    if function := _find_function(unit):
        name = unit["metadata"]["name"]
        raise conflict(
            f"the unit {name!r} cannot be changed: it is a worker of the function {function!r}: change the function"
        )


def is_worker(unit: Json) -> bool:
    return _find_function(unit) is not None


def _find_function(unit: Json) -> str | None:
    owner = controller_of(unit)
    return owner["name"] if owner is not None and owner["kind"] == "GPUFunction" else None
