"""How many calls may be passed on at once: in this process, and of one tenant."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from platform_api.http.errors import too_many, unavailable
from platform_api.http.limits import share_of
from platform_api.metrics import ApiMetrics


class Places:
    def __init__(self, limit: int, metrics: ApiMetrics) -> None:
        self._limit = limit
        self._taken: Counter[str] = Counter()
        self._metrics = metrics

    @contextmanager
    def one(self, tenant: str) -> Iterator[None]:
        """A place for as long as the block runs; a refusal when there is none."""
        if self._taken[tenant] >= share_of(self._limit):
            raise too_many("too many calls to this tenant's units are open; end one, or try again later")
        if self._taken.total() >= self._limit:
            raise unavailable("too many calls to units are open here")
        self._count(tenant, 1)
        try:
            yield
        finally:
            self._count(tenant, -1)

    def _count(self, tenant: str, change: int) -> None:
        self._taken[tenant] += change
        if not self._taken[tenant]:
            del self._taken[tenant]
        self._metrics.open_passages.set(self._taken.total())
