"""Where calls of a storage's file browser go. From the caches, as for units."""

from typing import Any

from platform_api.auth.keys import Caller
from platform_api.cluster import Cluster
from platform_api.http.errors import not_ready
from platform_api.proxying.target import NotReady, Target
from platform_api.storages.plan import plan_accessor
from platform_api.storages.recovery import storage_not_found

Json = dict[str, Any]


class StorageTargets:
    def __init__(self, cluster: Cluster, *, development_addresses: bool) -> None:
        self._cluster = cluster
        self._development_addresses = development_addresses

    async def find(self, caller: Caller, name: str) -> Target:
        storage = await self._cluster.find_storage(caller.namespace, name)
        if storage is None:
            raise storage_not_found(name)
        self._cluster.require_known_pods()
        pods = self._cluster.accessor_pods_of(storage)
        match plan_accessor(storage, pods, development_addresses=self._development_addresses):
            case NotReady(message):
                raise not_ready(message)
            case target:
                return target

    def find_proxy_path(self, storage: Json) -> str | None:
        """Where this API shows the storage's files; None while nobody would answer."""
        pods = self._cluster.accessor_pods_of(storage)
        found = plan_accessor(storage, pods, development_addresses=self._development_addresses)
        return f"/api/v1/gpu-storages/{storage['metadata']['name']}/proxy/" if isinstance(found, Target) else None
