"""Everything that one pass knows about a storage: the values that `plan` decides on, read from the informers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import labels_of
from gpu_platform.domain.mount_holds import Hold, HolderKind, hold_of
from gpu_platform.domain.stacks import as_accepted
from gpu_platform.domain.storages import GPUStorageSpec
from gpu_platform.domain.tenants import tenant_of
from reconciler.informers import World
from reconciler.units.observe import is_restricted

LATE_BINDING = "WaitForFirstConsumer"


@dataclass(frozen=True)
class Observed:
    storage: Json
    spec: GPUStorageSpec | None
    """None: it does not fit the schema of this version."""

    hold: Hold | None
    is_unit_running: bool
    """Whether the unit that mounts it is to run."""

    claim: Json | None
    binds_late: bool
    """Its class waits for the first pod before it makes a volume."""

    jobs: tuple[Json, ...]
    """Of this very storage, newest preparation or not."""

    network_policy: Json | None
    service: Json | None
    deployment: Json | None
    pods: tuple[Json, ...]
    """What prepares it and what shows it."""

    source: Json | None
    """The storage that it is to be a copy of."""

    restricted: bool
    has_class: bool = True
    """The class of its claim is there."""

    away: Mapping[str, str] = field(default_factory=dict)
    """The nodes of its pods that are not Ready, and why."""


def observe_storage(world: World, namespace: str, name: str) -> Observed | None:
    """None when there is no such storage (any more), or it is in no tenant's namespace: there we may do nothing.

    Whoever edits a storage behind the API changes nothing: it is as it was accepted until `drift` puts that back.
    """
    found = world.storages.get(namespace, name)
    if found is None or tenant_of(namespace) is None:
        return None
    storage = as_accepted(found)
    spec = GPUStorageSpec.parse(storage.get("spec", {}))
    hold = hold_of(storage)
    place = f"{namespace}/{name}"
    source = spec.prepare.from_storage_name if spec and spec.prepare else None
    claim = world.claims.get(namespace, name)
    class_name = claim["spec"].get("storageClassName") if claim else None
    storage_class = world.storage_classes.get(None, class_name) if class_name else None
    pods = world.pods.by_index("storage", place)
    return Observed(
        storage=storage,
        spec=spec,
        hold=hold,
        is_unit_running=_is_unit_running(world, namespace, hold),
        claim=claim if claim is not None and labels_of(claim).get(names.LABEL_STORAGE) == name else None,
        binds_late=storage_class is not None and storage_class.get("volumeBindingMode") == LATE_BINDING,
        jobs=tuple(job for job in world.jobs.by_index("storage", place) if _is_owned(job, storage)),
        network_policy=_own(world.network_policies.get(namespace, names.storage_policy_name(name)), storage),
        service=_own(world.services.get(namespace, names.accessor_name(name)), storage),
        deployment=_own(world.deployments.get(namespace, names.accessor_name(name)), storage),
        pods=pods,
        source=world.storages.get(namespace, source) if source else None,
        restricted=is_restricted(world, namespace),
        has_class=storage_class is not None,
        away=world.away_nodes(pods),
    )


def mounts(unit: Json, storage: str) -> bool:
    """Whether this unit, as it was accepted, works with the storage."""
    wanted = as_accepted(unit).get("spec", {}).get("storageMounts") or ()
    return any(mount["name"] == storage for mount in wanted)


def _is_unit_running(world: World, namespace: str, hold: Hold | None) -> bool:
    if hold is None or hold.holder.kind is not HolderKind.UNIT:
        return False
    unit = world.units.get(namespace, hold.holder.name)
    return unit is not None and bool(as_accepted(unit)["spec"].get("running", True))


def _own(item: Json | None, storage: Json) -> Json | None:
    return item if item is not None and _is_owned(item, storage) else None


def _is_owned(item: Json, storage: Json) -> bool:
    """By this storage; what an earlier one with its name left is on its way out, by its owner reference."""
    owners = item["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == storage["metadata"]["uid"] for owner in owners)
