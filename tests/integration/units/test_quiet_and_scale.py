"""An unchanged world is left in peace, and a thousand units are no trouble."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp

from gpu_platform.adapters.kube import KubeClient, KubeError
from gpu_platform.adapters.kube.paths import DEPLOYMENTS, GPU_UNITS
from gpu_platform.domain import names
from tests.support.audit_log import AuditLog
from tests.support.cluster_processes import pid_of
from tests.support.clusters import RunningCluster
from tests.support.units_and_stock import INSTANCES, create_unit, ensure_spec, unit_body
from tests.support.waiting import eventually

Json = dict[str, Any]

QUIET_UNITS = 200
MANY_UNITS = 1_000
WRITES_PER_UNIT = 8
AT_ONCE = 20
LIST_SECONDS = 60
HTTP = {"ports": [{"name": "http", "port": 8000}]}
TINY: Json = {
    "apiVersion": names.API_VERSION,
    "kind": "GPUSpec",
    "metadata": {"name": "tiny.0"},
    "spec": {
        "cpu": "1m",
        "memory": "1Mi",
        "gpu": 0,
        "nodeSelector": {"runtime.lokiwager.io/node": "simulated"},
    },
}
"""Without GPUs: the simulated nodes have room for thousands of them."""


async def create_many(kube: KubeClient, prefix: str, count: int) -> None:
    await ensure_spec(kube, TINY)
    limit = asyncio.Semaphore(AT_ONCE)

    async def create(number: int) -> None:
        async with limit:
            # The API server gives out few Service addresses a second (its own client is throttled): one in ten.
            template = HTTP if number % 10 == 0 else {}
            body = unit_body(f"{prefix}-{number}", specName=TINY["metadata"]["name"], template=template)
            body["metadata"]["labels"] = {"test": prefix}
            await create_unit(kube, body)

    await asyncio.gather(*(create(number) for number in range(count)))


async def ready_count(kube: KubeClient, prefix: str) -> int:
    selector = {"labelSelector": f"test={prefix}"}
    units = (await kube.get(GPU_UNITS.collection(INSTANCES), selector, timeout=LIST_SECONDS))["items"]
    return sum(unit.get("status", {}).get("phase") == "Ready" for unit in units)


async def all_ready(kube: KubeClient, prefix: str, count: int, within: float) -> None:
    async def are_ready() -> bool:
        return await ready_count(kube, prefix) == count

    await eventually(are_ready, within=within, every=2)


async def delete_many(kube: KubeClient, prefix: str) -> None:
    async def are_deleted() -> bool:
        try:
            await kube.delete(f"{GPU_UNITS.collection(INSTANCES)}?labelSelector=test%3D{prefix}", timeout=LIST_SECONDS)
        except KubeError as error:
            # Of so many, a busy API server deletes no more than it has time for.
            if error.reason != "Timeout":
                raise
            return False
        return True

    await eventually(are_deleted, within=300)

    async def are_gone() -> bool:
        selector = {"labelSelector": f"{names.LABEL_NAME}={names.NAME_VALUE}"}
        left = await kube.get(DEPLOYMENTS.collection(INSTANCES), selector, timeout=LIST_SECONDS)
        return not any(item["metadata"]["name"].startswith(f"unit-{prefix}-") for item in left["items"])

    await eventually(are_gone, within=300, every=0.5)


async def passes(cluster: RunningCluster, controller: str = "units") -> float:
    """How many passes the controller has made since its process started."""
    url = f"http://127.0.0.1:{cluster.record.ports['reconciler-metrics']}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        lines = (await response.text()).splitlines()
    counts = [
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith("gpu_platform_reconciler_passes_total{") and f'controller="{controller}"' in line
    ]
    return sum(counts)


async def test_a_second_pass_over_unchanged_units_sends_no_mutating_request(
    kube: KubeClient, cluster: RunningCluster
) -> None:
    """The second pass is that of a new process: it remembers nothing of the first."""
    await create_many(kube, "quiet", QUIET_UNITS)
    await all_ready(kube, "quiet", QUIET_UNITS, within=180)
    await nothing_more_is_written(cluster)
    log = AuditLog.from_here(cluster.directory.audit_log)
    first = pid_of(cluster, "reconciler")
    os.kill(first, signal.SIGTERM)

    async def has_passed_all() -> bool:
        if Path(f"/proc/{first}").exists():
            # On its way out it still answers for itself.
            return False
        try:
            return await passes(cluster) >= QUIET_UNITS
        except aiohttp.ClientError:
            return False

    await eventually(has_passed_all, within=120)
    assert log.counts() == {}
    await delete_many(kube, "quiet")


async def test_a_thousand_units_are_ready_with_few_writes_each(kube: KubeClient, cluster: RunningCluster) -> None:
    log = AuditLog.from_here(cluster.directory.audit_log)
    await create_many(kube, "many", MANY_UNITS)
    await all_ready(kube, "many", MANY_UNITS, within=600)
    await nothing_more_is_written(cluster)
    counts = log.counts()
    assert counts["create", "deployments"] >= MANY_UNITS
    assert sum(counts.values()) / MANY_UNITS <= WRITES_PER_UNIT
    await delete_many(kube, "many")


async def nothing_more_is_written(cluster: RunningCluster) -> None:
    """Two seconds without a write: whatever was under way is at its end."""

    async def is_quiet() -> bool:
        log = AuditLog.from_here(cluster.directory.audit_log)
        await asyncio.sleep(2)
        return not log.writes()

    await eventually(is_quiet, within=180)
