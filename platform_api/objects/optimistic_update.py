"""Optimistic updates: an object is changed only as it was seen, and tried again on a conflict; and the refusals on the
way (ETag, deletion, ownership by a Pulumi stack or a function), which units, storages, functions and pools share.
`what` is the kind of the object in plain words.
"""

from collections.abc import Awaitable, Callable

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of, controller_of
from gpu_platform.kube import ConflictError, NotFoundError
from platform_api.http.bodies import etag_of, is_matched
from platform_api.http.errors import ApiError, changed_meanwhile, conflict, in_progress

TRIES = 5
"""Against others who write the same object, mostly the reconciler its status."""


async def change_as_seen(
    what: str,
    name: str,
    if_match: str | None,
    look: Callable[[], Awaitable[Json]],
    write: Callable[[Json], Awaitable[Json]],
) -> Json:
    """The object after the change. `look` gives it or refuses; `write` is guarded by what was seen, and gives the
    object back as it is when nothing changes."""
    for _ in range(TRIES):
        seen = await look()
        check_match(seen, what, if_match)
        refuse_leaving(seen, what)
        try:
            return await write(seen)
        except (ConflictError, NotFoundError):
            # The next look says what became of it.
            continue
    raise changed_by_others(what, name)


def check_match(item: Json, what: str, if_match: str | None) -> None:
    """412 when the object is no longer what the caller's `If-Match` says."""
    if not is_matched(if_match, item):
        name = item["metadata"]["name"]
        raise changed_meanwhile(f"the {what} {name!r} has changed since; its ETag is {etag_of(item)} now")


def refuse_leaving(item: Json, what: str) -> None:
    """409 for an object on its way out."""
    if "deletionTimestamp" in item["metadata"]:
        raise conflict(f"the {what} {item['metadata']['name']!r} is being deleted")


def changed_by_others(what: str, name: str) -> ApiError:
    return in_progress(f"the {what} {name!r} is being changed by somebody else; try again")


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
