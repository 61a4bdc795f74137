"""Where a unit's calls go. From the caches: a call costs Kubernetes nothing, and goes on while it is away."""

from typing import Any

from platform_api.auth.keys import Caller
from platform_api.cluster import Cluster
from platform_api.gpu_units.changes import unit_not_found
from platform_api.gpu_units.plan import NoSuchPort, find_callable_port, plan_target
from platform_api.http.errors import not_found, not_ready
from platform_api.proxy.plan import plan_address
from platform_api.proxying.target import NotReady, Simulated, Target

Json = dict[str, Any]


class UnitTargets:
    def __init__(self, cluster: Cluster, *, development_addresses: bool) -> None:
        self._cluster = cluster
        self._development_addresses = development_addresses

    async def find(self, caller: Caller, name: str, port: str) -> Target:
        unit = await self._cluster.find_unit(caller.namespace, name)
        if unit is None:
            raise unit_not_found(name)
        self._cluster.require_known_pods()
        pods = self._cluster.pods_of(unit)
        match plan_target(unit, pods, port, development_addresses=self._development_addresses):
            case NoSuchPort(message):
                raise not_found("port_not_found", message)
            case NotReady(message):
                raise not_ready(message)
            case target:
                return target

    def find_address(self, unit: Json) -> str | Simulated | None:
        """Of the pod that answers the unit's calls."""
        return plan_address(self._cluster.pods_of(unit), development_addresses=self._development_addresses)

    def find_proxy_path(self, unit: Json) -> str | None:
        """Where this API passes calls on to the unit's first port; None for a unit that is not called by HTTP."""
        port = find_callable_port(unit)
        return f"/api/v1/gpu-units/{unit['metadata']['name']}/proxy/{port}/" if port else None
