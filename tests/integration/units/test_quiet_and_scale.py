"""An unchanged world is left in peace, and many units cost few writes each; `make faults` makes a thousand."""

import asyncio

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, KubeError, UnreachableError
from gpu_platform.kube.paths import DEPLOYMENTS, GPU_UNITS
from tests.support.audit_log import AuditLog
from tests.support.cluster_processes import restart_reconciler
from tests.support.clusters import RunningCluster
from tests.support.fault_report import FaultReport
from tests.support.figures import count_passes, count_queued
from tests.support.units_and_stock import INSTANCES, create_unit, ensure_spec, unit_body
from tests.support.waiting import PATIENCE_SECONDS, NotYet, eventually

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


async def wait_all_ready(kube: KubeClient, prefix: str, count: int) -> None:
    async def are_ready() -> bool | NotYet:
        selector = {"labelSelector": f"test={prefix}"}
        units = (await kube.get(GPU_UNITS.collection(INSTANCES), selector, timeout=LIST_SECONDS))["items"]
        ready = sum(unit.get("status", {}).get("phase") == "Ready" for unit in units)
        return ready == count or NotYet(f"{ready} of {len(units)} are ready")

    # A unit takes about 50 ms of both cores.
    await eventually(are_ready, within=PATIENCE_SECONDS + count / 2, every=0.5 + count / 1_000)


async def delete_many(kube: KubeClient, prefix: str) -> None:
    async def are_deleted() -> bool | NotYet:
        try:
            await kube.delete(f"{GPU_UNITS.collection(INSTANCES)}?labelSelector=test%3D{prefix}", timeout=LIST_SECONDS)
        except KubeError as error:
            # Of so many, a busy API server deletes no more than it has time for; then it says so, or hangs up.
            if error.reason != "Timeout" and not isinstance(error, UnreachableError):
                raise
            return NotYet(error)
        return True

    await eventually(are_deleted, within=PATIENCE_SECONDS * 2)

    async def are_gone() -> bool:
        selector = {"labelSelector": f"{names.LABEL_NAME}={names.NAME_VALUE}"}
        left = await kube.get(DEPLOYMENTS.collection(INSTANCES), selector, timeout=LIST_SECONDS)
        return not any(item["metadata"]["name"].startswith(f"unit-{prefix}-") for item in left["items"])

    await eventually(are_gone, within=PATIENCE_SECONDS * 2, every=0.5)


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.faults)])
async def test_a_second_pass_over_unchanged_units_sends_no_mutating_request(
    kube: KubeClient, cluster: RunningCluster, count: int, faults: FaultReport
) -> None:
    """The second pass is that of a new process: it remembers nothing of the first."""
    prefix = f"quiet{count}"
    await create_many(kube, prefix, count)
    await wait_all_ready(kube, prefix, count)
    await wait_at_rest(cluster)
    log = AuditLog.from_here(cluster.directory.audit_log)
    await restart_reconciler(cluster, passes=count)
    faults.hit("units met by a new process", count)
    assert log.counts() == {}
    faults.held("no write for what is as it should be")
    await delete_many(kube, prefix)


@pytest.mark.parametrize("count", [60, pytest.param(1_000, marks=[pytest.mark.faults, pytest.mark.timeout(1_800)])])
async def test_many_units_are_ready_with_few_writes_each(
    kube: KubeClient, cluster: RunningCluster, count: int, faults: FaultReport
) -> None:
    log = AuditLog.from_here(cluster.directory.audit_log)
    prefix = f"many{count}"
    await create_many(kube, prefix, count)
    await wait_all_ready(kube, prefix, count)
    faults.hit("units at once", count)
    await wait_at_rest(cluster)
    counts = log.counts()
    assert counts["create", "deployments"] >= count
    assert sum(counts.values()) / count <= WRITES_PER_UNIT
    faults.held("few writes per unit")
    await delete_many(kube, prefix)


async def wait_at_rest(cluster: RunningCluster) -> None:
    """Nothing is due, and for two seconds nothing was looked at or written: what was under way is at its end."""

    async def is_at_rest() -> bool | NotYet:
        log = AuditLog.from_here(cluster.directory.audit_log)
        before = await count_passes(cluster, "units")
        await asyncio.sleep(2)
        seen = {
            "due": await count_queued(cluster, "units"),
            "passes": await count_passes(cluster, "units") - before,
            "writes": len(log.writes()),
        }
        return not any(seen.values()) or NotYet(seen)

    await eventually(is_at_rest)
