"""The storages controller: observe, plan, apply; and which changes concern which storage."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from itertools import chain

from gpu_platform.controller.loop import Done, Key, RequeueAfter, Result, Trigger
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import key_of, labels_of
from gpu_platform.domain.mount_holds import HolderKind, hold_of
from gpu_platform.kube.requests import ObjectClient
from reconciler.expectations import PATIENCE, OwnWrites, place_of
from reconciler.guarded_writes import Recorder
from reconciler.informers import World
from reconciler.isolation import with_servers
from reconciler.storages.apply import apply_plan, places_of
from reconciler.storages.holds import claim_of, tend_hold
from reconciler.storages.observe import observe_storage
from reconciler.storages.plan import plan_storage
from reconciler.storages.resources import StorageSettings


class StoragesController:
    name = "storages"

    def __init__(
        self,
        world: World,
        client: ObjectClient,
        events: Recorder,
        settings: StorageSettings,
        now: Callable[[], datetime],
    ) -> None:
        self._world = world
        self._client = client
        self._events = events
        self._settings = settings
        self._now = now
        self._own_writes = OwnWrites(now)

    async def reconcile(self, namespace: str, name: str) -> Result:
        observed = observe_storage(self._world, namespace, name)
        if observed is None:
            return Done()
        if self._own_writes.are_outdated(places_of(observed)):
            return RequeueAfter(PATIENCE, "the watch has not shown the last write yet")
        now = self._now()
        was_written, wait = await tend_hold(self._world, self._client, observed.storage, now)
        if was_written:
            self._own_writes.remember(place_of("GPUStorage", observed.storage), observed.storage)
            return RequeueAfter(PATIENCE, "the watch has not shown the hold yet")
        blocked = with_servers(self._settings.blocked_egress, self._world.api_servers())
        plan = plan_storage(observed, replace(self._settings, blocked_egress=blocked), now)
        await apply_plan(plan, observed, self._client, self._events, self._own_writes, now)
        return RequeueAfter(wait, "the hold was not confirmed yet") if wait is not None else Done()

    def triggers(self) -> tuple[Trigger, ...]:
        world = self._world
        owned = (world.claims, world.jobs, world.services, world.network_policies)
        return (
            Trigger(world.storages, self._storage_keys),
            Trigger(world.units, self._unit_keys),
            *(Trigger(cache, _labelled_keys) for cache in owned),
            Trigger(world.deployments, self._deployment_keys),
            Trigger(world.pods, self._pod_keys),
            Trigger(world.nodes, lambda node: chain.from_iterable(map(_labelled_keys, world.pods_away(node)))),
            *(Trigger(cache, self._all_keys) for cache in (world.storage_classes, world.api_endpoints)),
        )

    def _all_keys(self, _: Json) -> Iterable[Key]:
        return [key_of(storage) for storage in self._world.storages.objects()]

    def _storage_keys(self, storage: Json) -> Iterable[Key]:
        """The storage, those that are filled from it, and the one that it is filled from."""
        namespace, name = key_of(storage)
        yield namespace, name
        yield from (key_of(copy) for copy in self._world.copies_of(namespace, name))
        if source := (storage["spec"].get("prepare") or {}).get("fromStorageName"):
            yield namespace, source
        hold = hold_of(storage)
        if hold is not None and hold.holder.kind is HolderKind.STORAGE:
            yield namespace, hold.holder.name

    def _unit_keys(self, unit: Json) -> Iterable[Key]:
        """What it mounts, and what it mounted."""
        namespace, name = key_of(unit)
        yield from ((namespace, mount["name"]) for mount in unit["spec"].get("storageMounts") or ())
        yield from (key_of(storage) for storage in self._world.storages_of_unit(namespace, name))

    def _deployment_keys(self, deployment: Json) -> Iterable[Key]:
        """Of a file browser its storage, of a unit what it holds."""
        yield from _labelled_keys(deployment)
        if unit := labels_of(deployment).get(names.LABEL_UNIT):
            namespace = deployment["metadata"]["namespace"]
            yield from (key_of(storage) for storage in self._world.storages_of_unit(namespace, unit))

    def _pod_keys(self, pod: Json) -> Iterable[Key]:
        yield from _labelled_keys(pod)
        claims = filter(None, map(claim_of, pod["spec"].get("volumes") or ()))
        yield from ((pod["metadata"]["namespace"], claim) for claim in claims)


def _labelled_keys(item: Json) -> Iterable[Key]:
    if storage := labels_of(item).get(names.LABEL_STORAGE):
        yield item["metadata"]["namespace"], storage
