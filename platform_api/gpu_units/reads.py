"""Looking at units. Asked of the API server itself, so that a caller sees what any replica has just accepted."""

from datetime import datetime
from ipaddress import ip_address
from typing import Any

from gpu_platform.adapters.kube import GoneError
from gpu_platform.adapters.kube.paths import EVENTS, GPU_UNITS, PODS
from gpu_platform.adapters.unit_writes import find_unit
from gpu_platform.domain import names
from gpu_platform.domain.gpu_units import Phase
from platform_api.bounded_client import BoundedClient
from platform_api.gpu_units.changes import unit_not_found
from platform_api.gpu_units.schemas import AddressView, EventView, view_of
from platform_api.gpu_units.targets import UnitTargets
from platform_api.http.errors import conflict, invalid_field
from platform_api.keys.key_ring import Caller

Json = dict[str, Any]


class UnitReads:
    def __init__(self, client: BoundedClient, targets: UnitTargets) -> None:
        self._client = client
        self._targets = targets

    async def get(self, caller: Caller, name: str) -> Json:
        unit = await find_unit(self._client, caller.namespace, name)
        if unit is None:
            raise unit_not_found(name)
        return unit

    async def list_page(
        self, caller: Caller, limit: int, token: str | None, spec_name: str | None, phase: Phase | None
    ) -> tuple[list[Json], str | None]:
        """One page, and the token of the next one. The API server itself narrows it down."""
        by_spec = [f"spec.specName={spec_name}"] if spec_name else []
        selector = ",".join([*by_spec, *_phase_selectors(phase)])
        params = {"limit": str(limit), "continue": token, "fieldSelector": selector}
        given = {key: value for key, value in params.items() if value}
        try:
            page = await self._client.get(GPU_UNITS.collection(caller.namespace), given)
        except GoneError:
            raise invalid_field("continue", "is too old by now; begin again without it") from None
        return page["items"], page["metadata"].get("continue") or None

    async def events(self, caller: Caller, name: str) -> list[EventView]:
        """Of the unit and of its pods, oldest first."""
        unit = await self.get(caller, name)
        regarding = [unit, *await self.pods_of(unit)]
        found = [event for item in regarding for event in await self._events_of(item)]
        return [_event_view(event) for event in sorted(found, key=_event_order)]

    async def pods_of(self, unit: Json) -> list[Json]:
        """Newest first."""
        metadata = unit["metadata"]
        selector = {"labelSelector": f"{names.LABEL_UNIT_UID}={metadata['uid']}"}
        pods = (await self._client.get(PODS.collection(metadata["namespace"]), selector))["items"]
        return sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)

    async def address(self, caller: Caller, name: str, root: str) -> AddressView:
        """`root` is where the caller reaches this API."""
        unit = await self.get(caller, name)
        view = view_of(unit)
        if view.access_url is None:
            why = "it has no ports" if not view.template.ports else f"it is {view.phase}: {view.message or view.reason}"
            raise conflict(f"the unit {name!r} has no address: {why}")
        address = self._targets.find_address(unit)
        if address is None:
            raise conflict(f"the unit {name!r} has no address: its pod is not ready just now")
        path = self._targets.find_proxy_path(unit)
        proxy_url = f"{root}{path}" if path else None
        if not ip_address(address).is_loopback:
            return AddressView(url=view.access_url, reach="cluster", proxy_url=proxy_url)
        # A pod of the development host node: this is where it really listens.
        scheme, _, place = view.access_url.partition("://")
        return AddressView(url=f"{scheme}://{address}:{place.rpartition(':')[2]}", reach="host", proxy_url=proxy_url)

    async def _events_of(self, item: Json) -> list[Json]:
        metadata = item["metadata"]
        selector = {"fieldSelector": f"involvedObject.uid={metadata['uid']}"}
        answer = await self._client.get(EVENTS.collection(metadata["namespace"]), selector)
        return list(answer["items"])


def _phase_selectors(phase: Phase | None) -> list[str]:
    """A unit that nobody has looked at yet has no phase, and is shown as Pending."""
    if phase is Phase.PENDING:
        return [f"status.phase!={other}" for other in Phase if other is not Phase.PENDING]
    return [f"status.phase={phase}"] if phase else []


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
