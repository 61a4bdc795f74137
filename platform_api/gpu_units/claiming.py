"""Claims stock for a request: from the index first, and by one fresh look when that has none."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from gpu_platform.domain.stock import Claim, rank_stock
from gpu_platform.kube import KubeError
from gpu_platform.store.claims import list_free_stock, try_claim
from platform_api.cluster import Cluster
from platform_api.metrics import ApiMetrics

Json = dict[str, Any]

TRIED_LIMIT = 10_000


class StockClaimer:
    def __init__(self, cluster: Cluster, metrics: ApiMetrics, now: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._now = now
        self._tried: dict[str, str] = {}
        """Uid and resourceVersion of stock that this process has tried: in that version it is no longer to be had,
        whatever the index, a few milliseconds behind, still says."""

    async def claim(self, spec_name: str, claim: Claim, stock_name: str | None) -> Json | None:
        """Claims one stock unit of the spec; None when none is free."""
        indexed = self._cluster.available_stock(spec_name)
        stock = await self._take(self._rank(indexed, spec_name, stock_name), claim)
        if stock is None:
            listed = await list_free_stock(self._cluster.client, spec_name)
            stock = await self._take(self._rank(listed, spec_name, stock_name), claim)
        self._metrics.count_claim("taken" if stock else "none")
        return stock

    def _rank(self, stock: Iterable[Json], spec_name: str, stock_name: str | None) -> tuple[Json, ...]:
        ranked = rank_stock(stock, spec_name)
        return tuple(each for each in ranked if stock_name is None or each["metadata"]["name"] == stock_name)

    async def _take(self, candidates: Iterable[Json], claim: Claim) -> Json | None:
        for stock in candidates:
            uid, version = stock["metadata"]["uid"], stock["metadata"]["resourceVersion"]
            if self._tried.get(uid) == version:
                continue
            self._remember(uid, version)
            try:
                taken = await try_claim(self._cluster.client, stock, claim, self._now())
            except KubeError:
                # Nobody knows whether it was taken. If it was not, it must be possible to try again.
                self._tried.pop(uid, None)
                raise
            if taken is not None:
                return taken
            self._metrics.count_claim("lost")
        return None

    def _remember(self, uid: str, version: str) -> None:
        if len(self._tried) >= TRIED_LIMIT:
            self._tried.clear()
        self._tried[uid] = version
