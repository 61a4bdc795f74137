"""Changing an object as it was seen, and the refusals on the way: what units, storages, functions and pools do alike.
`what` an object is, in words."""

from collections.abc import Awaitable, Callable
from typing import Any

from gpu_platform.kube import ConflictError, NotFoundError
from platform_api.http.errors import ApiError, changed_meanwhile, conflict, in_progress
from platform_api.http.etags import etag_of, is_matched

Json = dict[str, Any]

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
