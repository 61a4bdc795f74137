"""Everything that one pass knows about a unit: the values that `plan` decides on, read from the informers, but for the
Secrets, which no process may list.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from gpu_platform.domain import names
from gpu_platform.domain.functions import GPUFunctionSpec
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of, key_of, labels_of
from gpu_platform.domain.specs import GPUSpecSpec
from gpu_platform.domain.stacks import as_accepted
from gpu_platform.domain.stock import claim_holder_of, claimed_at, is_claimed, is_from
from gpu_platform.kube.paths import SECRETS
from gpu_platform.kube.requests import ObjectClient, find
from reconciler.child_diff import UnitChild
from reconciler.informers import World, function_key_of

POD_SECURITY_LABEL = "pod-security.kubernetes.io/enforce"


@dataclass(frozen=True)
class SourceStock:
    """The stock that is claimed for this unit, while it exists."""

    unit: Json
    pods: tuple[Json, ...]
    claimed_at: datetime | None


@dataclass(frozen=True)
class Observed:
    unit: Json
    catalogue: GPUSpecSpec | None
    restricted: bool
    children: Mapping[UnitChild, Json]
    """The unit's own objects, as they are now."""

    leftovers: Mapping[UnitChild, Json]
    """Objects under this unit's names that belong to an earlier unit: they have to go first."""

    pods: tuple[Json, ...]
    is_claimed_stock: bool
    holder: Json | None
    """For claimed stock: the unit that takes it over."""

    holder_pods: tuple[Json, ...]
    source: SourceStock | None
    claims_under_way: tuple[datetime, ...]
    """For stock: when the other claims were made whose stock still stands."""

    stock_lurks: bool
    """For stock: pods of other stock wait for any GPU that becomes free."""

    function: GPUFunctionSpec | None = None
    """Whose calls the unit takes, if it takes any and the function exists."""

    token_secret: Json | None = None
    """Of a unit whose SSH has a token: the Secret that holds it, asked of the API server itself."""

    storages: Mapping[str, Json] = field(default_factory=dict)
    """Those of its mounts that exist."""

    away: Mapping[str, str] = field(default_factory=dict)
    """The nodes of its pods that are not Ready, and why."""

    stored: Json | None = None
    """The unit as it is stored, which an edit may have made another one than was accepted."""

    @property
    def deployment(self) -> Json | None:
        return self.children.get(UnitChild.DEPLOYMENT)

    @property
    def is_scaled_up(self) -> bool:
        """Whether the Deployment exists and asks for a pod. One that a stopped unit left at 0 does not: what still
        runs of it is on its way out."""
        deployment = self.deployment
        return deployment is not None and deployment["spec"].get("replicas") != 0


def observe_unit(world: World, namespace: str, name: str, now: datetime) -> Observed | None:
    """None when there is no such unit (any more): its objects go with it, by their owner references.

    Whoever edits a unit behind the API restarts nothing: it runs as it was accepted until `drift` puts that back.
    """
    found = world.units.get(namespace, name)
    if found is None:
        return None
    unit = as_accepted(found)
    child = names.child_name(name)
    is_stock = names.is_stock_namespace(namespace)
    holder = _holder(world, unit) if is_stock else None
    live = {kind: cache.get(namespace, child) for kind, cache in world.unit_children.items()}
    own = {kind: item for kind, item in live.items() if item and _is_owned(item, unit)}
    pods = world.pods_of(unit)
    return Observed(
        unit=unit,
        stored=found,
        catalogue=world.find_spec(unit.get("spec", {}).get("specName", "")),
        restricted=is_restricted(world, namespace),
        children=own,
        leftovers={kind: item for kind, item in live.items() if item and kind not in own},
        pods=pods,
        is_claimed_stock=is_stock and is_claimed(unit),
        holder=holder,
        holder_pods=world.pods_of(holder) if holder else (),
        source=_source(world, unit, now),
        claims_under_way=_claims_under_way(world, unit, now) if is_stock else (),
        stock_lurks=is_stock and bool(world.unschedulable_stock_pods()),
        function=_function(world, unit),
        storages=_storages(world, unit),
        away=world.away_nodes(pods),
    )


async def observe_token(client: ObjectClient, observed: Observed) -> Observed:
    """The same, with the Secret of its FRP token, if it has one."""
    metadata = observed.unit["metadata"]
    ssh = observed.unit.get("spec", {}).get("ssh") or {}
    if not ssh.get("enabled") or not ssh.get("tokenHash") or names.is_stock_namespace(metadata["namespace"]):
        return observed
    name = names.ssh_token_secret(metadata["name"], ssh["tokenHash"])
    return replace(observed, token_secret=await find(client, SECRETS, name, metadata["namespace"]))


def _storages(world: World, unit: Json) -> dict[str, Json]:
    wanted = [mount["name"] for mount in unit.get("spec", {}).get("storageMounts") or ()]
    found = ((name, world.storages.get(unit["metadata"]["namespace"], name)) for name in wanted)
    return {name: storage for name, storage in found if storage is not None}


def _function(world: World, unit: Json) -> GPUFunctionSpec | None:
    key = function_key_of(unit)
    function = world.functions.get(*key) if key else None
    return GPUFunctionSpec.parse(as_accepted(function)["spec"]) if function else None


def _is_owned(item: Json, unit: Json) -> bool:
    """By this unit, or by nobody, as after an edit; not by an earlier unit with the same name."""
    owners = [owner for owner in item["metadata"].get("ownerReferences", []) if owner.get("controller")]
    return all(owner["uid"] == unit["metadata"]["uid"] for owner in owners)


def is_restricted(world: World, namespace: str) -> bool:
    item = world.namespaces.get(None, namespace)
    return item is not None and labels_of(item).get(POD_SECURITY_LABEL) == "restricted"


def _claims_under_way(world: World, unit: Json, now: datetime) -> tuple[datetime, ...]:
    others = (stock for stock in world.claimed_stock() if stock is not unit)
    return tuple(at for stock in others if (at := claimed_at(stock, now)) is not None)


def _holder(world: World, stock: Json) -> Json | None:
    """None also when a unit has the holder's name but knows nothing of this stock."""
    namespace, _, name = (claim_holder_of(stock) or "").partition("/")
    holder = world.units.get(namespace, name)
    return as_accepted(holder) if holder is not None and is_from(holder, stock) else None


def _source(world: World, unit: Json, now: datetime) -> SourceStock | None:
    """The stock behind the unit, if the claim is really for it: a name alone may belong to newer stock."""
    name = annotations_of(unit).get(names.ANNOTATION_SOURCE_STOCK_NAME)
    stock = world.units.get(names.STOCK_NAMESPACE, name) if name else None
    holder = names.claim_holder(*key_of(unit))
    if stock is None or claim_holder_of(stock) != holder or not is_from(unit, stock):
        return None
    return SourceStock(unit=stock, pods=world.pods_of(stock), claimed_at=claimed_at(stock, now))
