"""Everything that matters for one pool, from the caches."""

from gpu_platform.domain.stacks import as_accepted
from gpu_platform.domain.stock_pools import StockPoolSpec
from reconciler.informers import World
from reconciler.stock.plan import Observed


def observe_pool(world: World, namespace: str, name: str) -> Observed | None:
    """None when there is no such pool: its stock goes with it, by owner reference."""
    pool = world.pools.get(namespace, name)
    if pool is None:
        return None
    spec = StockPoolSpec.model_validate(as_accepted(pool)["spec"])
    return Observed(
        pool=pool,
        spec=spec,
        catalogue=world.find_spec(spec.spec_name),
        stock=world.stock_of(name),
        instances=tuple(map(as_accepted, world.instances_of(name))),
    )
