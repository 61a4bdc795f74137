"""Keeps the hold on a storage true: gives it to a unit that mounts it, confirms it, and ends it.

Whether a holder still needs the storage is asked of the API server itself: with a cache that lags, a hold would end
under a unit that was just changed back, and two units would mount one storage.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import key_of, labels_of
from gpu_platform.domain.mount_holds import Hold, HolderKind, KeepHold, hold_of, plan_hold, unit_holder
from gpu_platform.kube.paths import GPU_STORAGES, GPU_UNITS, PODS
from gpu_platform.kube.requests import ObjectClient, find
from gpu_platform.store.storages import apply_hold_plan, try_hold
from reconciler.informers import World
from reconciler.storages.observe import mounts
from reconciler.storages.prepare import is_copying
from reconciler.units.pod_status import is_finished


async def tend_hold(world: World, client: ObjectClient, storage: Json, now: datetime) -> tuple[bool, timedelta | None]:
    """Whether the storage was written, or would have been had nobody else done so; else how long the hold may stay
    unconfirmed."""
    hold = hold_of(storage)
    if hold is None:
        unit = find_next_unit(world, storage)
        if unit is None or "deletionTimestamp" in storage["metadata"] or not await _mounts_now(client, unit, storage):
            return False, None
        await try_hold(client, storage, unit_holder(unit["metadata"]["name"]), now)
        return True, None
    if _is_seen_to_be_needed(world, storage, hold):
        return False, None
    plan = plan_hold(hold, await _find_need(world, client, storage, hold), now)
    if isinstance(plan, KeepHold):
        return False, plan.until - now if plan.until is not None else None
    await apply_hold_plan(client, storage, plan)
    return True, None


def find_next_unit(world: World, storage: Json) -> Json | None:
    """The oldest unit that mounts it and has no hold: kubectl made it, or it came too late for one."""
    metadata = storage["metadata"]
    candidates = [
        unit
        for unit in world.units_mounting(metadata["namespace"], metadata["name"])
        if "deletionTimestamp" not in unit["metadata"] and mounts(unit, metadata["name"])
    ]
    return min(
        candidates, key=lambda unit: (unit["metadata"]["creationTimestamp"], unit["metadata"]["name"]), default=None
    )


async def _mounts_now(client: ObjectClient, unit: Json, storage: Json) -> bool:
    """The cache may still show a unit that has just released the storage. A hold for it would be confirmed by no
    unit, and keep the storage from being deleted for `HOLD_GRACE`. The unit's own event brings the next look."""
    namespace, name = key_of(storage)
    live = await find(client, GPU_UNITS, unit["metadata"]["name"], namespace)
    return live is not None and "deletionTimestamp" not in live["metadata"] and mounts(live, name)


def _is_seen_to_be_needed(world: World, storage: Json, hold: Hold) -> bool:
    """The cache is enough to leave things as they are."""
    if hold.uid is None:
        return False
    namespace, name = key_of(storage)
    is_unit = hold.holder.kind is HolderKind.UNIT
    cache, needs = (world.units, mounts) if is_unit else (world.storages, is_copying)
    holder = cache.get(namespace, hold.holder.name)
    return holder is not None and holder["metadata"]["uid"] == hold.uid and needs(holder, name)


async def _find_need(world: World, client: ObjectClient, storage: Json, hold: Hold) -> str | None:
    """The uid of the holder that needs the storage now."""
    namespace, name = key_of(storage)
    if hold.holder.kind is HolderKind.STORAGE:
        target = await find(client, GPU_STORAGES, hold.holder.name, namespace)
        return target["metadata"]["uid"] if target is not None and is_copying(target, name) else None
    unit = await find(client, GPU_UNITS, hold.holder.name, namespace)
    if unit is not None and mounts(unit, name):
        return str(unit["metadata"]["uid"])
    # It was unmounted or is gone; what it started may still write, or be started once more.
    deployment = world.deployments.get(namespace, names.child_name(hold.holder.name))
    if deployment is not None and may_start_with(deployment, name):
        return labels_of(deployment["spec"]["template"]).get(names.LABEL_UNIT_UID) or deployment["metadata"]["uid"]
    answer = await client.get(PODS.collection(namespace), {"labelSelector": f"{names.LABEL_UNIT}={hold.holder.name}"})
    return next(_units_of_pods_with(answer["items"], name), None)


def may_start_with(deployment: Json, claim: str) -> bool:
    """Whether Kubernetes may still make a pod of it that mounts the claim: by its template, or by an earlier one that
    it has not turned from yet."""
    spec = deployment["spec"]
    if not spec.get("replicas", 1):
        return False
    is_behind = (deployment.get("status") or {}).get("observedGeneration", 0) < deployment["metadata"]["generation"]
    return is_behind or any(claim_of(volume) == claim for volume in spec["template"]["spec"].get("volumes") or ())


def _units_of_pods_with(pods: Iterable[Json], claim: str) -> Iterator[str]:
    for pod in pods:
        volumes = pod["spec"].get("volumes") or ()
        if not is_finished(pod) and any(claim_of(volume) == claim for volume in volumes):
            yield labels_of(pod).get(names.LABEL_UNIT_UID) or pod["metadata"]["uid"]


def claim_of(volume: Json) -> str | None:
    claim = volume.get("persistentVolumeClaim")
    return str(claim["claimName"]) if claim else None
