"""A leader that slept through its lease leads again, with everything that it does: controllers, scaler and sweep."""

import asyncio
from functools import partial

from gpu_platform.adapters.kube import KubeClient
from gpu_platform.adapters.kube.paths import LEASES
from gpu_platform.domain.names import SYSTEM_NAMESPACE
from tests.support.cluster_processes import frozen
from tests.support.clusters import RunningCluster
from tests.support.waiting import eventually

LEASE = LEASES.item("gpu-platform-reconciler", SYSTEM_NAMESPACE)
LONGER_THAN_THE_LEASE = 11.0


async def has_more_terms(kube: KubeClient, terms: int) -> bool:
    return int((await kube.get(LEASE))["spec"]["leaseTransitions"]) > terms


async def test_a_reconciler_that_slept_leads_again(kube: KubeClient, cluster: RunningCluster) -> None:
    for _ in range(3):
        terms = int((await kube.get(LEASE))["spec"]["leaseTransitions"])
        with frozen(cluster, "reconciler"):
            await asyncio.sleep(LONGER_THAN_THE_LEASE)
        await eventually(partial(has_more_terms, kube, terms), within=60)
