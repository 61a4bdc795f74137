"""Everything that matters for one pool, from the caches."""

from pydantic import ValidationError

from gpu_platform.domain.gpu_specs import GPUSpecSpec
from gpu_platform.domain.stock_pools import StockPoolSpec
from reconciler.stock.plan import Observed
from reconciler.world import World


def observe_pool(world: World, namespace: str, name: str) -> Observed | None:
    """None when there is no such pool: its stock goes with it, by owner reference."""
    pool = world.pools.get(namespace, name)
    if pool is None:
        return None
    spec = StockPoolSpec.model_validate(pool["spec"])
    entry = world.specs.get(None, spec.spec_name)
    try:
        catalogue = GPUSpecSpec.model_validate(entry["spec"]) if entry else None
    except ValidationError:
        catalogue = None
    return Observed(
        pool=pool,
        spec=spec,
        catalogue=catalogue,
        stock=world.stock_of(name),
        instances=world.instances_of(name),
    )
