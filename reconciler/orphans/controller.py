"""The orphans controller: looks at the whole cluster every few seconds. Its one key stands for all of it."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from gpu_platform.adapters.claims import release_claim
from gpu_platform.adapters.kube import ResourcePath
from gpu_platform.adapters.kube.paths import DEPLOYMENTS, NETWORK_POLICIES, SERVICES
from gpu_platform.domain import names
from reconciler.guarded_writes import delete_seen
from reconciler.loop import Key, Trigger
from reconciler.orphans.plan import DeleteOrphan, Observed, ReleaseClaim, active_operation_ids, plan_orphans
from reconciler.results import RequeueAfter, Result
from reconciler.world import World, key_of, unit_key
from reconciler.writer import Writer

Json = dict[str, Any]

EVERYTHING: Key = ("", "cluster")
INTERVAL = timedelta(seconds=10)
PATHS: dict[str, ResourcePath] = {
    "Deployment": DEPLOYMENTS,
    "Service": SERVICES,
    "NetworkPolicy": NETWORK_POLICIES,
}


class OrphansController:
    name = "orphans"

    def __init__(self, world: World, writer: Writer, now: Callable[[], datetime]) -> None:
        self._world = world
        self._writer = writer
        self._now = now
        self._orphaned_since: Mapping[str, datetime] = {}

    async def reconcile(self, namespace: str, name: str) -> Result:
        del namespace, name
        plan = plan_orphans(self._observe(), self._now())
        self._orphaned_since = plan.orphaned_since
        for write in plan.writes:
            match write:
                case ReleaseClaim(stock, holder):
                    await release_claim(self._writer, stock, holder)
                case DeleteOrphan(child):
                    await delete_seen(self._writer, PATHS[child["kind"]], child)
        return RequeueAfter(INTERVAL, "looks again and again")

    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(self._world.namespaces, lambda _: [EVERYTHING]),)

    def _observe(self) -> Observed:
        world = self._world
        kinds = (
            ("Deployment", world.deployments),
            ("Service", world.services),
            ("NetworkPolicy", world.network_policies),
        )
        return Observed(
            stock=world.units.objects(names.STOCK_NAMESPACE),
            units=frozenset(unit_key(*key_of(unit)) for unit in world.units.objects()),
            active_operations=active_operation_ids(world.operations.objects()),
            # Items of a list carry no kind.
            children=tuple({**child, "kind": kind} for kind, cache in kinds for child in cache.objects()),
            orphaned_since=self._orphaned_since,
        )
