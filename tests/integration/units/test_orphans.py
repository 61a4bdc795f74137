"""Claims without a unit are released, and objects without an owner are deleted."""

from datetime import UTC, datetime

from gpu_platform.domain import names
from gpu_platform.domain.stock import is_claimed
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_UNITS, SERVICES
from reconciler.orphans.plan import OrphanLimits
from tests.support.cluster_processes import wait_passes
from tests.support.clusters import RunningCluster
from tests.support.units_and_stock import INSTANCES, STOCK, claim, find, stock_pool, wait_pool_available
from tests.support.waiting import eventually


async def test_a_claim_without_a_unit_is_released_and_an_object_without_an_owner_is_deleted(kube: KubeClient) -> None:
    lost = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "unit-lost", "labels": names.unit_labels("lost")},
        "spec": {"ports": [{"port": 80}]},
    }
    await kube.create(SERVICES.collection(INSTANCES), lost)
    async with stock_pool(kube, "claims", 1):
        stock = await claim(kube, "claims", "never-made")
        name = stock["metadata"]["name"]

        async def is_free_again() -> bool:
            # Of the two that are free then, the pool may delete this one.
            now = await find(kube, GPU_UNITS.item(name, STOCK))
            return now is None or not is_claimed(now)

        # This claim looks as old as the limit, to spare the test a minute.
        older = (datetime.now(UTC) - OrphanLimits().claim).isoformat()
        await kube.patch(
            GPU_UNITS.item(name, STOCK), {"metadata": {"annotations": {names.ANNOTATION_CLAIMED_AT: older}}}
        )
        await eventually(is_free_again)
        # Two were free for a moment: the pool had refilled.
        await wait_pool_available(kube, "claims", 1)

        async def is_gone() -> bool:
            return await find(kube, SERVICES.item("unit-lost", INSTANCES)) is None

        await eventually(is_gone)


async def test_a_young_claim_is_left_alone(kube: KubeClient, cluster: RunningCluster) -> None:
    async with stock_pool(kube, "kept", 1):
        stock = await claim(kube, "kept", "never-made-either")
        await wait_passes(cluster, "orphans", 2)
        assert is_claimed(await kube.get(GPU_UNITS.item(stock["metadata"]["name"], STOCK)))
