"""The orphans controller: looks at the whole cluster every few seconds. Its one key stands for all of it."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime

from gpu_platform.controller.loop import Key, RequeueAfter, Result, Trigger
from gpu_platform.domain import names
from gpu_platform.domain.metadata import key_of
from gpu_platform.domain.stock import claim_of
from gpu_platform.kube import KubeError
from gpu_platform.kube.requests import ObjectClient
from gpu_platform.store.unit_acquisition import release_unused_claim
from reconciler.guarded_writes import DeleteObject, apply_write
from reconciler.informers import World
from reconciler.orphans.plan import Observed, OrphanLimits, ReleaseClaim, ends_of, plan_orphans

log = logging.getLogger(__name__)

EVERYTHING: Key = ("", "cluster")
LOOKS_PER_LIMIT = 3
"""How often everything is looked at within the shortest limit."""


class OrphansController:
    name = "orphans"

    def __init__(self, world: World, client: ObjectClient, now: Callable[[], datetime], limits: OrphanLimits) -> None:
        self._world = world
        self._client = client
        self._now = now
        self._limits = limits
        self.interval = min(limits.claim, limits.child) / LOOKS_PER_LIMIT
        self._orphaned_since: Mapping[str, datetime] = {}

    async def reconcile(self, namespace: str, name: str) -> Result:
        del namespace, name
        plan = plan_orphans(self._observe(), self._now(), self._limits)
        self._orphaned_since = plan.orphaned_since
        for write in plan.writes:
            await self._apply(write)
        return RequeueAfter(self.interval, "looks again and again")

    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(self._world.namespaces, lambda _: [EVERYTHING]),)

    async def _apply(self, write: ReleaseClaim | DeleteObject) -> None:
        """Carries out one write. An object whose write the API server refuses is logged, and does not keep the pass
        from the others."""
        item = write.stock if isinstance(write, ReleaseClaim) else write.seen
        try:
            match write:
                case ReleaseClaim(stock):
                    # A cache may be behind: an operation that was rolled forward late ends before the cache of the
                    # units shows the result.
                    await release_unused_claim(self._client, stock, claim_of(stock))
                case DeleteObject():
                    await apply_write(write, self._client)
        except KubeError as error:
            if not error.is_refusal:
                raise
            namespace, name = key_of(item)
            log.warning("orphan.refused", extra={"namespace": namespace, "object": name, "error": error.message})

    def _observe(self) -> Observed:
        world = self._world
        return Observed(
            stock=world.units.objects(names.STOCK_NAMESPACE),
            units={names.claim_holder(*key_of(unit)): unit for unit in world.units.objects()},
            operations=ends_of(world.operations.objects()),
            # Items of a list carry no kind.
            children=tuple(
                {**child, "kind": kind} for kind, cache in world.unit_children.items() for child in cache.objects()
            ),
            orphaned_since=self._orphaned_since,
        )
