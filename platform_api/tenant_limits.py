"""The limits of every tenant, as the stack's configuration sets them; read every few seconds."""

import asyncio
import logging

from gpu_platform.domain import names
from gpu_platform.domain.tenant_limits import LIMITS_CONFIG_MAP, TenantLimits, TenantLimitTable, read_limit_table
from gpu_platform.kube import KubeClient, KubeError, NotFoundError
from gpu_platform.kube.paths import CONFIG_MAPS

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
