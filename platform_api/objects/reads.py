"""Reads that the resources share: one page of a tenant's objects, their Events, and the logs of their pods.

All are asked of the API server itself, so that a caller sees what any replica has just accepted.
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, TypeVar

from fastapi import Query

from gpu_platform.api_models.events import EventView
from gpu_platform.domain import names
from gpu_platform.domain.conditions import find_condition
from gpu_platform.domain.functions import GPUFunctionStatus
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of, is_being_deleted
from gpu_platform.domain.stacks import stack_name_of
from gpu_platform.domain.stock import StockPoolStatus
from gpu_platform.domain.storages import GPUStorageStatus
from gpu_platform.domain.units import GPUUnitStatus
from gpu_platform.domain.value import Value, fields_of
from gpu_platform.kube import GoneError, KubeError, ResourcePath
from gpu_platform.kube.paths import EVENTS, PODS
from platform_api.http.errors import conflict, invalid_field, not_found, unavailable
from platform_api.kube_health import BoundedClient

PAGE_LIMIT = 500
"""Objects of one page, at most."""

PageToken = Annotated[str | None, Query(alias="continue", max_length=4_096, description="The next page.")]

WaitRecorded = Annotated[
    Literal["recorded"] | None, Query(description="Answer when its stack is recorded, or after 30 s.")
]

ObjectStatus = GPUUnitStatus | GPUStorageStatus | GPUFunctionStatus | StockPoolStatus
Phase = TypeVar("Phase", bound=StrEnum)
TAIL_LIMIT = 100_000

SILENCE_SECONDS = 3_600.0
"""Whoever is followed may say nothing for a long time."""


def view_common(item: Json, status: ObjectStatus, model: type[Value], first: StrEnum) -> Json:
    """The fields that the views of all kinds share, and those of the status that this view has, too: a field of the
    spec with such a name takes its place. `first` is the phase of an object that no controller has looked at yet."""
    metadata = item["metadata"]
    ready = find_condition(status.conditions, "Ready")
    return {
        **fields_of(status, model),
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "operation_id": annotations_of(item).get(names.ANNOTATION_OPERATION_ID),
        "phase": type(first)("Terminating") if is_being_deleted(item) else status.phase or first,
        "generation": metadata.get("generation", 1),
        "created_at": datetime.fromisoformat(metadata["creationTimestamp"]),
        "stack": stack_name_of(item),
        "reason": ready.reason if ready else None,
        "message": ready.message if ready else None,
    }


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


@dataclass(frozen=True)
class LogOptions:
    """How much of it a caller wants."""

    follow: Annotated[bool, Query(description="Go on as it grows.")] = False
    tail: Annotated[int | None, Query(ge=0, le=TAIL_LIMIT, description="Only the last lines.")] = None
    previous: Annotated[bool, Query(description="Of the container before the last restart.")] = False
    timestamps: Annotated[bool, Query(description="With the time of each line.")] = False

    def to_params(self) -> dict[str, str]:
        flags = {"follow": self.follow, "previous": self.previous, "timestamps": self.timestamps}
        tail = {"tailLines": str(self.tail)} if self.tail is not None else {}
        return {flag: "true" for flag, is_set in flags.items() if is_set} | tail


async def read_pods(client: BoundedClient, namespace: str, selector: str) -> list[Json]:
    """Newest first."""
    pods = (await client.get(PODS.collection(namespace), {"labelSelector": selector}))["items"]
    return sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)


async def read_logs(
    client: BoundedClient, whose: str, pod: Json, options: LogOptions, container: str | None = None
) -> AsyncGenerator[bytes, None]:
    """Of the pod's only container, or of this one. `whose` is said in refusals: `the unit 'web'`."""
    spec = pod["spec"]
    there = [each["name"] for each in (*spec["containers"], *spec.get("initContainers", ()))]
    if container is not None and container not in there:
        raise not_found("container_not_found", f"{whose} has no container {container!r}: it has no SSH")
    path = PODS.of(pod, "log")
    params = options.to_params() | ({"container": container} if container is not None else {})
    try:
        async for chunk in client.chunks(path, params, silence=SILENCE_SECONDS):
            yield chunk
    except KubeError as error:
        if error.status == 400:
            raise conflict(f"{whose} has no such logs yet: {error.message}") from None
        if error.status == 404:
            raise conflict(f"{whose} has no logs just now: its pod is gone") from None
        if error.status >= 500:
            # The message has the node's address, which is none of the tenant's business.
            raise unavailable(f"the node of {whose} does not hand out its logs just now") from error
        raise
