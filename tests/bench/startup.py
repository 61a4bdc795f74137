"""P2, the reconciler's part: how long until a unit from stock is Ready, against a bare Deployment."""

from gpu_platform.adapters.kube.paths import DEPLOYMENTS, GPU_UNITS
from tests.bench.figures import Figure, Goal, p50
from tests.bench.sightings import watching
from tests.bench.workloads import BARE, Bench, take_unit, time_bare_deployment, time_unit_without_stock
from tests.integration.platform import INSTANCES, available_pool, stock_pool

RUNS = 30
POOL = "p2"
STOCK_UNITS = 2


async def measure_startup(bench: Bench) -> list[Figure]:
    """The three take turns, so that whatever else loads the machine meets all of them alike."""
    kube = bench.kube
    from_stock: list[float] = []
    without_stock: list[float] = []
    bare: list[float] = []
    async with (
        stock_pool(kube, POOL, STOCK_UNITS),
        watching(kube, GPU_UNITS.collection(INSTANCES)) as units,
        watching(kube, DEPLOYMENTS.collection(BARE)) as deployments,
    ):
        for number in range(RUNS):
            from_stock.append((await take_unit(kube, units, POOL, f"p2-{number}")).seconds)
            # The refill is under way; it must not slow down what is measured next.
            await available_pool(kube, POOL, STOCK_UNITS)
            without_stock.append(await time_unit_without_stock(kube, units, f"p2-new-{number}"))
            bare.append(await time_bare_deployment(kube, deployments, f"p2-{number}"))
    baseline = p50(bare)
    goal = Goal(2.0, of_ratio=True)
    return [
        Figure(
            "P2",
            "unit from stock: claim → Ready, p50 (bare Deployment → Available)",
            p50(from_stock),
            "s",
            RUNS,
            baseline,
            goal,
        ),
        Figure("P2", "  the same without stock to take over", p50(without_stock), "s", RUNS, baseline),
    ]
