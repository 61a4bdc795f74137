"""One page of a tenant's objects, asked of the API server itself, so that a caller sees what any replica has just
accepted."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, TypeVar

from gpu_platform.kube import GoneError, ResourcePath
from platform_api.bounded_client import BoundedClient
from platform_api.http.errors import invalid_field

Json = dict[str, Any]
Phase = TypeVar("Phase", bound=StrEnum)


async def read_page(
    client: BoundedClient,
    path: ResourcePath,
    namespace: str,
    limit: int,
    token: str | None,
    selectors: Sequence[str] = (),
) -> tuple[list[Json], str | None]:
    """One page, and the token of the next one. The API server itself narrows it down, by fields."""
    params = {"limit": str(limit), "continue": token, "fieldSelector": ",".join(selectors)}
    given = {key: value for key, value in params.items() if value}
    try:
        page = await client.get(path.collection(namespace), given)
    except GoneError:
        raise invalid_field("continue", "is too old by now; begin again without it") from None
    return page["items"], page["metadata"].get("continue") or None


def build_phase_selectors(phase: Phase | None, first: Phase) -> list[str]:
    """What nobody has looked at yet has no phase, and is shown in the first one."""
    if phase is first:
        return [f"status.phase!={other}" for other in type(first) if other is not first]
    return [f"status.phase={phase}"] if phase else []
