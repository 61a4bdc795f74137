"""Looking at units. Asked of the API server itself, so that a caller sees what any replica has just accepted."""

from ipaddress import ip_address
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.gpu_units import Phase
from gpu_platform.kube.paths import GPU_UNITS
from gpu_platform.store.unit_writes import find_unit
from platform_api.auth.keys import Caller
from platform_api.bounded_client import BoundedClient
from platform_api.events import EventView, by_uid, read_events
from platform_api.gpu_units.changes import unit_not_found
from platform_api.gpu_units.schemas import AddressView, view_of
from platform_api.gpu_units.targets import UnitTargets
from platform_api.http.errors import conflict
from platform_api.objects.reads import read_pods
from platform_api.paging import build_phase_selectors, read_page
from platform_api.proxying.target import Simulated

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
        by_spec = [f"spec.specName={spec_name}"] if spec_name else []
        selectors = [*by_spec, *build_phase_selectors(phase, Phase.PENDING)]
        return await read_page(self._client, GPU_UNITS, caller.namespace, limit, token, selectors)

    async def events(self, caller: Caller, name: str) -> list[EventView]:
        """Of the unit and of its pods, oldest first."""
        unit = await self.get(caller, name)
        regarding = [unit, *await self.pods_of(unit)]
        return await read_events(self._client, caller.namespace, map(by_uid, regarding))

    async def pods_of(self, unit: Json) -> list[Json]:
        """Newest first."""
        metadata = unit["metadata"]
        return await read_pods(self._client, metadata["namespace"], f"{names.LABEL_UNIT_UID}={metadata['uid']}")

    async def get_newest_pod(self, caller: Caller, name: str) -> Json:
        """409 while there is none."""
        unit = await self.get(caller, name)
        pods = await self.pods_of(unit)
        if not pods:
            phase = (unit.get("status") or {}).get("phase") or "Pending"
            raise conflict(f"the unit {name!r} has no logs: it is {phase} and has no pod; see its events")
        return pods[0]

    async def address(self, caller: Caller, name: str, root: str) -> AddressView:
        """`root` is where the caller reaches this API."""
        unit = await self.get(caller, name)
        view = view_of(unit)
        if view.access_url is None:
            why = "it has no ports" if not view.template.ports else f"it is {view.phase}: {view.message or view.reason}"
            raise conflict(f"the unit {name!r} has no address: {why}")
        address = self._targets.find_address(unit)
        if address is None:
            raise conflict(f"the unit {name!r} has no address: no pod of it is ready; see its events")
        if isinstance(address, Simulated):
            raise conflict(f"the unit {name!r} has no address that answers: it {address.why}")
        path = self._targets.find_proxy_path(unit)
        proxy_url = f"{root}{path}" if path else None
        if not ip_address(address).is_loopback:
            return AddressView(url=view.access_url, reach="cluster", proxy_url=proxy_url, public_url=view.public_url)
        # A pod of the development host node: this is where it really listens.
        scheme, _, place = view.access_url.partition("://")
        url = f"{scheme}://{address}:{place.rpartition(':')[2]}"
        return AddressView(url=url, reach="host", proxy_url=proxy_url, public_url=view.public_url)
