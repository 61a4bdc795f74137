"""What happened to a tenant's objects, as Kubernetes' Events tell it."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from gpu_platform.domain.value import Value
from gpu_platform.kube.paths import EVENTS
from platform_api.bounded_client import BoundedClient

Json = dict[str, Any]


class EventView(Value):
    """Something that happened to an object of the tenant's, or to what belongs to it."""

    type: str
    reason: str
    message: str
    object: Annotated[str, Field(description="What it happened to.")]
    count: int
    first_seen: datetime | None = None
    last_seen: datetime | None = None


def by_uid(item: Json) -> str:
    """Selects the Events of this very object, not those of an earlier one with its name."""
    return f"involvedObject.uid={item['metadata']['uid']}"


def by_name(kind: str, name: str) -> str:
    """Selects the Events of an object that we need not have seen."""
    return f"involvedObject.kind={kind},involvedObject.name={name}"


async def read_events(client: BoundedClient, namespace: str, selectors: Iterable[str]) -> list[EventView]:
    """Oldest first."""
    found: list[Json] = []
    for selector in selectors:
        found += (await client.get(EVENTS.collection(namespace), {"fieldSelector": selector}))["items"]
    return [_event_view(event) for event in sorted(found, key=_event_order)]


def _event_order(event: Json) -> tuple[str, int]:
    """Some tell the time in whole seconds; within one of them, the order in which they were written counts."""
    return _last_seen(event)[: len("2030-01-01T00:00:00")], int(event["metadata"]["resourceVersion"])


def _last_seen(event: Json) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])


def _event_view(event: Json) -> EventView:
    regarding = event["involvedObject"]
    last = datetime.fromisoformat(_last_seen(event))
    first = event.get("firstTimestamp")
    return EventView(
        type=event.get("type") or "Normal",
        reason=event.get("reason") or "",
        message=event.get("message") or "",
        object=f"{regarding.get('kind')}/{regarding.get('name')}",
        count=event.get("count") or 1,
        first_seen=datetime.fromisoformat(first) if first else last,
        last_seen=last,
    )
