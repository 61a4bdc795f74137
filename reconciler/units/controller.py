"""The units controller: observe, plan, apply; and which changes concern which unit."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from itertools import chain

from gpu_platform.controller.loop import Done, Key, RequeueAfter, Result, Trigger
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of, key_of, labels_of
from gpu_platform.domain.stock import claim_holder_of, is_claimed
from gpu_platform.kube.requests import ObjectClient
from reconciler.expectations import PATIENCE, OwnWrites
from reconciler.guarded_writes import Recorder
from reconciler.informers import World
from reconciler.isolation import with_servers
from reconciler.metadata_reports import MetadataReports
from reconciler.units.apply import apply_plan, places_of
from reconciler.units.observe import observe_token, observe_unit
from reconciler.units.plan import UnitSettings, plan_unit
from reconciler.units.pod_status import find_unschedulable


class UnitsController:
    name = "units"

    def __init__(
        self, world: World, writer: ObjectClient, events: Recorder, settings: UnitSettings, now: Callable[[], datetime]
    ) -> None:
        self._world = world
        self._writer = writer
        self._events = events
        self._settings = settings
        self._now = now
        self._own_writes = OwnWrites(now)
        self._reports = MetadataReports(events, now)

    async def reconcile(self, namespace: str, name: str) -> Result:
        observed = observe_unit(self._world, namespace, name, self._now())
        if observed is None:
            return Done()
        if names.is_stock_namespace(namespace):
            # The drift controller looks at all other units.
            await self._reports.report(observed.unit)
        if self._own_writes.are_outdated(places_of(observed)):
            return RequeueAfter(PATIENCE, "the watch has not shown the last write yet")
        observed = await observe_token(self._writer, observed)
        now = self._now()
        servers = self._world.api_servers()
        blocked = with_servers(self._settings.blocked_egress, servers)
        plan = plan_unit(observed, replace(self._settings, blocked_egress=blocked, api_servers=servers), now)
        await apply_plan(plan, observed, self._writer, self._events, self._own_writes, now)
        return RequeueAfter(plan.requeue_after, plan.why) if plan.requeue_after else Done()

    def triggers(self) -> tuple[Trigger, ...]:
        world = self._world
        return (
            Trigger(world.units, self._unit_keys),
            *(Trigger(cache, _owner_keys) for cache in world.unit_children.values()),
            Trigger(world.api_endpoints, lambda _: [key_of(unit) for unit in world.units.objects()]),
            Trigger(world.pods, self._pod_keys),
            Trigger(world.nodes, lambda node: chain.from_iterable(map(_owner_keys, world.pods_away(node)))),
            Trigger(world.specs, lambda spec: self._indexed("spec", spec["metadata"]["name"])),
            Trigger(world.functions, lambda function: self._indexed("function", "/".join(key_of(function)))),
            Trigger(world.storages, lambda storage: self._indexed("storage", "/".join(key_of(storage)))),
        )

    def _unit_keys(self, unit: Json) -> Iterable[Key]:
        """The unit, and its other half in a hand-off: the claimed stock's holder, or the holder's stock."""
        yield key_of(unit)
        yield from _holder_keys(unit)
        if is_claimed(unit):
            # A claim made or consumed is what stock without a place waits for.
            yield from (key_of(waiting) for waiting in self._world.waiting_stock())
        yield from _source_keys(unit)

    def _pod_keys(self, pod: Json) -> Iterable[Key]:
        for namespace, name in _owner_keys(pod):
            yield namespace, name
            if unit := self._world.units.get(namespace, name):
                yield from _holder_keys(unit)
                yield from _source_keys(unit)
        if pod["metadata"]["namespace"] == names.STOCK_NAMESPACE and find_unschedulable([pod]) is not None:
            yield from (key_of(claimed) for claimed in self._world.claimed_stock())

    def _indexed(self, index: str, value: str) -> Iterable[Key]:
        return [key_of(unit) for unit in self._world.units.by_index(index, value)]


def _owner_keys(item: Json) -> Iterable[Key]:
    if unit := labels_of(item).get(names.LABEL_UNIT):
        yield item["metadata"]["namespace"], unit


def _source_keys(unit: Json) -> Iterable[Key]:
    if stock := annotations_of(unit).get(names.ANNOTATION_SOURCE_STOCK_NAME):
        yield names.STOCK_NAMESPACE, stock


def _holder_keys(unit: Json) -> Iterable[Key]:
    namespace, _, name = (claim_holder_of(unit) or "").partition("/")
    if name:
        yield namespace, name
