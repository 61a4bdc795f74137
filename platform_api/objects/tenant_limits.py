"""The limits of tenants: read from the stack's configuration every few seconds, and checked before anything is written.

The counts are those of the caches: what requests create at the same moment is not in them yet. The ResourceQuota in the
tenant's namespace refuses what passes here by that.
"""

import asyncio
import logging
from collections.abc import Callable

from gpu_platform.domain import names
from gpu_platform.domain import tenant_limits as object_counts
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import OperationKind
from gpu_platform.domain.tenant_limits import (
    LIMITS_CONFIG_MAP,
    TenantLimits,
    TenantLimitTable,
    find_reached,
    read_limit_table,
)
from gpu_platform.kube import KubeClient, KubeError, NotFoundError
from gpu_platform.kube.paths import CONFIG_MAPS, OPERATIONS
from gpu_platform.kube.requests import find
from gpu_platform.store.ledger import Opened
from platform_api.auth.keys import Caller
from platform_api.cluster import Cluster
from platform_api.http.errors import ApiError, quota_exceeded

log = logging.getLogger(__name__)
INTERVAL = 5.0


class TenantLimitReader:
    def __init__(self, defaults: TenantLimits) -> None:
        self._defaults = defaults
        self._table = TenantLimitTable(defaults)
        self._problems: tuple[str, ...] = ()

    def of(self, tenant: str) -> TenantLimits:
        return self._table.of(tenant)

    def take(self, data: dict[str, str]) -> None:
        self._table, problems = read_limit_table(self._defaults, data)
        if problems != self._problems:
            self._problems = problems
            log.warning("limits.unreadable", extra={"configMap": LIMITS_CONFIG_MAP, "entries": list(problems)})

    async def follow(self, client: KubeClient) -> None:
        """Runs until it is cancelled. While Kubernetes is away, the limits are those that were read last."""
        path = CONFIG_MAPS.item(LIMITS_CONFIG_MAP, names.SYSTEM_NAMESPACE)
        while True:
            try:
                self.take((await client.get(path)).get("data") or {})
            except NotFoundError:
                self.take({})
            except KubeError as error:
                log.debug("limits.unread", extra={"error": str(error)})
            await asyncio.sleep(INTERVAL)


class ObjectLimits:
    def __init__(self, cluster: Cluster, limits_of: Callable[[str], TenantLimits]) -> None:
        self._cluster = cluster
        self._limits_of = limits_of
        self._caches = {
            object_counts.UNITS: cluster.units,
            object_counts.STORAGES: cluster.storages,
            object_counts.FUNCTIONS: cluster.functions,
            object_counts.OPERATIONS: cluster.operations,
        }

    def check(self, caller: Caller, kind: OperationKind) -> None:
        """Raises a 403 where the tenant has reached a limit that a request of this kind needs."""
        if refusal := self._find_refusal(caller, kind):
            raise refusal

    async def find_replay(self, caller: Caller, wanted: Json) -> Opened | None:
        """Returns the operation if it is recorded; None if it may be recorded; a 403 where a limit forbids that.

        What the cache shows is read and not created again: the API server counts a refused creation as an object until
        its quota controller has counted again.
        """
        metadata = wanted["metadata"]
        refusal = self._find_refusal(caller, OperationKind(wanted["spec"]["kind"]))
        is_shown = self._cluster.operations.get(metadata["namespace"], metadata["name"]) is not None
        if not refusal and not is_shown:
            return None
        recorded = await find(self._cluster.client, OPERATIONS, metadata["name"], metadata["namespace"])
        if recorded is not None:
            return Opened(recorded, is_new=False)
        if refusal:
            raise refusal
        return None

    def _find_refusal(self, caller: Caller, kind: OperationKind) -> ApiError | None:
        used = {name: cache.count(caller.namespace) for name, cache in self._caches.items()}
        reached = find_reached(kind, self._limits_of(caller.tenant), used)
        return quota_exceeded(reached) if reached else None
