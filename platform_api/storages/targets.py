"""Where calls of a storage's file browser go. From the caches, as for units."""

from gpu_platform.adapters.kube.paths import GPU_STORAGES
from gpu_platform.adapters.kube.requests import find
from platform_api.cluster import Cluster
from platform_api.http.errors import not_ready, unavailable
from platform_api.keys.key_ring import Caller
from platform_api.proxying.target import NotReady, Target
from platform_api.storages.plan import plan_accessor
from platform_api.storages.recovery import storage_not_found


class StorageTargets:
    def __init__(self, cluster: Cluster, *, development_addresses: bool) -> None:
        self._cluster = cluster
        self._development_addresses = development_addresses

    async def find(self, caller: Caller, name: str) -> Target:
        # One that is too new for the cache is looked up before a caller hears that there is none.
        storage = self._cluster.storages.get(caller.namespace, name) or await find(
            self._cluster.client, GPU_STORAGES, name, caller.namespace
        )
        if storage is None:
            raise storage_not_found(name)
        if not self._cluster.knows_pods:
            raise unavailable("Kubernetes has been away for too long to know where files are")
        pods = self._cluster.accessor_pods_of(storage)
        match plan_accessor(storage, pods, development_addresses=self._development_addresses):
            case NotReady(message):
                raise not_ready(message)
            case target:
                return target
