"""P2: how long until a unit that was asked for over REST is Ready, against a bare Deployment."""

import asyncio

from gpu_platform.domain.stock import is_available
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import DEPLOYMENTS, GPU_UNITS
from tests.bench.figures import Figure, Goal, p50
from tests.bench.rest import open_rest
from tests.bench.sightings import watching
from tests.bench.workloads import (
    BARE,
    Bench,
    time_bare_deployment,
    time_rented_unit,
    time_unit_from_stock,
    time_unit_without_stock,
)
from tests.support.units_and_stock import INSTANCES, stock_of, stock_pool
from tests.support.waiting import eventually

RUNS = 30
PAUSE_SECONDS = 0.3
"""What one run leaves behind (Events, endpoints, status of ReplicaSets) must not slow down the next one."""

POOL = "p2"
STOCK_UNITS = 2


async def measure_startup(bench: Bench) -> list[Figure]:
    """The four take turns, so that whatever else loads the machine meets all of them alike."""
    kube = bench.kube
    rented: list[float] = []
    from_stock: list[float] = []
    without_stock: list[float] = []
    bare: list[float] = []
    async with (
        open_rest(bench.record) as rest,
        stock_pool(kube, POOL, STOCK_UNITS),
        watching(kube, GPU_UNITS.collection(INSTANCES)) as units,
        watching(kube, DEPLOYMENTS.collection(BARE)) as deployments,
    ):
        for number in range(RUNS):
            rented.append(await time_rented_unit(rest, units, f"p2-rented-{number}"))
            await pool_is_refilled(kube, POOL, STOCK_UNITS)
            from_stock.append(await time_unit_from_stock(kube, units, POOL, f"p2-{number}"))
            await pool_is_refilled(kube, POOL, STOCK_UNITS)
            without_stock.append(await time_unit_without_stock(kube, units, f"p2-new-{number}"))
            await asyncio.sleep(PAUSE_SECONDS)
            bare.append(await time_bare_deployment(kube, deployments, f"p2-{number}"))
            await asyncio.sleep(PAUSE_SECONDS)
    baseline = p50(bare)
    goal = Goal(2.0, of_ratio=True)
    return [
        Figure(
            "P2",
            "unit from stock: POST → Ready, p50 ÷ bare Deployment → Available",
            p50(rented),
            "s",
            RUNS,
            baseline,
            goal,
        ),
        Figure("P2", "  the reconciler's part: claim → Ready", p50(from_stock), "s", RUNS, baseline),
        Figure("P2", "  the same without stock to take over", p50(without_stock), "s", RUNS, baseline),
    ]


async def pool_is_refilled(kube: KubeClient, pool: str, replicas: int) -> None:
    """Asks the stock itself: the pool's own status may be a little behind."""

    async def is_refilled() -> bool:
        stock = await stock_of(kube, pool)
        return len(stock) == replicas and all(map(is_available, stock))

    await eventually(is_refilled)
    await asyncio.sleep(PAUSE_SECONDS)
