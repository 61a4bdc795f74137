"""Everything that matters for one unit, from the caches."""

from typing import Any

from pydantic import ValidationError

from gpu_platform.domain import names
from gpu_platform.domain.gpu_specs import GPUSpecSpec
from gpu_platform.domain.stock import claim_holder_of, claimed_at, is_claimed
from reconciler.units.plan import Observed, SourceStock
from reconciler.world import World, annotations_of, labels_of

Json = dict[str, Any]

POD_SECURITY_LABEL = "pod-security.kubernetes.io/enforce"


def observe_unit(world: World, namespace: str, name: str) -> Observed | None:
    """None when there is no such unit (any more): its objects go with it, by their owner references."""
    unit = world.units.get(namespace, name)
    if unit is None:
        return None
    child = names.child_name(name)
    return Observed(
        unit=unit,
        catalogue=_catalogue(world, unit),
        restricted=_is_restricted(world, namespace),
        network_policy=world.network_policies.get(namespace, child),
        service=world.services.get(namespace, child),
        deployment=world.deployments.get(namespace, child),
        pods=world.pods_of(namespace, name),
        is_claimed_stock=names.is_stock_namespace(namespace) and is_claimed(unit),
        source=_source(world, unit),
    )


def _catalogue(world: World, unit: Json) -> GPUSpecSpec | None:
    entry = world.specs.get(None, unit.get("spec", {}).get("specName", ""))
    try:
        return GPUSpecSpec.model_validate(entry["spec"]) if entry else None
    except ValidationError:
        return None


def _is_restricted(world: World, namespace: str) -> bool:
    item = world.namespaces.get(None, namespace)
    return item is not None and labels_of(item).get(POD_SECURITY_LABEL) == "restricted"


def _source(world: World, unit: Json) -> SourceStock | None:
    """The stock behind the unit, if the claim is really for it: a name alone may belong to newer stock."""
    name = annotations_of(unit).get(names.ANNOTATION_SOURCE_STOCK_NAME)
    stock = world.units.get(names.STOCK_NAMESPACE, name) if name else None
    holder = names.claim_holder(unit["metadata"]["namespace"], unit["metadata"]["name"])
    if stock is None or claim_holder_of(stock) != holder:
        return None
    pods = world.pods_of(names.STOCK_NAMESPACE, stock["metadata"]["name"])
    return SourceStock(unit=stock, pods=pods, claimed_at=claimed_at(stock))
