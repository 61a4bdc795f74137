"""The reconciler may die after any of its writes about a storage: the next one goes on, and nothing is done twice."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpu_platform.devcluster.hostnode.node import HOST_NODE_TAINT, NODE_NAME
from gpu_platform.devcluster.processes import ACCESSOR_COMMAND
from gpu_platform.domain.conditions import is_true
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_STORAGES, JOBS
from tests.support.cluster_processes import frozen
from tests.support.clusters import RunningCluster
from tests.support.daemons import running_daemon
from tests.support.fault_report import FaultReport
from tests.support.storages import (
    create_storage,
    directory_of,
    expect_pvc_deleted,
    expect_storage_deleted,
    from_shell,
    jobs_of,
    storage_object,
    wait_storage_reason,
)
from tests.support.units_and_stock import INSTANCES
from tests.support.waiting import eventually


@dataclass(frozen=True)
class Moments:
    """After which writes a reconciler dies, in the order of the writes."""

    beginning: tuple[str, ...] = ()
    filling: tuple[str, ...] = ()
    deleting: tuple[str, ...] = ()


SOME = Moments(beginning=("made-job",), deleting=("deleted-job",))
ALL = Moments(
    beginning=(
        "before-finalizers",
        "made-persistentvolumeclaim",
        "made-networkpolicy",
        "made-job",
        "status-pending",
        "resumed-job",
        "status-running",
    ),
    filling=("patched-claim", "made-service", "made-deployment", "status-succeeded"),
    deleting=("deleted-deployment", "deleted-job", "deleted-persistentvolumeclaim", "before-finalizers"),
)


async def die_at_each(cluster: RunningCluster, directory: Path, faults: FaultReport, moments: Sequence[str]) -> None:
    """One reconciler after the other, each until it dies."""
    for moment in moments:
        settings = {
            "GPU_PLATFORM_RECONCILER_KUBECONFIG": str(cluster.kubeconfig),
            "GPU_PLATFORM_RECONCILER_CONTROLLERS": "storages",
            "GPU_PLATFORM_RECONCILER_LEADER_ELECT": "false",
            "GPU_PLATFORM_RECONCILER_PROBE_ADDRESS": "127.0.0.1:0",
            "GPU_PLATFORM_RECONCILER_METRICS_ADDRESS": "127.0.0.1:0",
            "GPU_PLATFORM_RECONCILER_STORAGE_NODE_SELECTOR": f"kubernetes.io/hostname={NODE_NAME}",
            "GPU_PLATFORM_RECONCILER_STORAGE_TOLERATIONS": HOST_NODE_TAINT,
            "GPU_PLATFORM_RECONCILER_ACCESSOR_COMMAND": ",".join(ACCESSOR_COMMAND),
            "GPU_PLATFORM_FAULT": f"storages.{moment}",
        }
        async with running_daemon("reconciler", directory / f"{moment}.log", settings) as daemon:
            assert await daemon.ends() == -9, moment
            faults.hit(f"storages.{moment}")


@pytest.mark.parametrize("moments", [SOME, pytest.param(ALL, marks=pytest.mark.faults)], ids=["some", "all"])
async def test_every_step_of_a_preparation_may_be_the_last_one(
    cluster: RunningCluster, kube: KubeClient, tmp_path: Path, faults: FaultReport, moments: Moments
) -> None:
    script = f"echo once >> /workspace/file; while ! test -e {tmp_path}/go; do sleep 0.1; done"
    with frozen(cluster, "reconciler"):
        await create_storage(kube, "dies-preparing", prepare=from_shell(script), accessor={"enabled": True})
        await die_at_each(cluster, tmp_path, faults, moments.beginning)
        (tmp_path / "go").touch()
        await die_at_each(cluster, tmp_path, faults, moments.filling)
    await wait_storage_reason(kube, "dies-preparing", "StorageReady")
    assert (await directory_of(kube, "dies-preparing") / "file").read_text() == "once\n"
    with frozen(cluster, "reconciler"):
        await kube.delete(GPU_STORAGES.item("dies-preparing", INSTANCES))
        await die_at_each(cluster, tmp_path, faults, moments.deleting)
    await expect_storage_deleted(kube, "dies-preparing")
    await expect_pvc_deleted(kube, "dies-preparing")
    faults.held("a storage is prepared once", "nothing is left of a deleted storage")


@pytest.mark.faults
async def test_a_failure_that_nobody_could_record_is_recorded_later_and_not_repeated(
    cluster: RunningCluster, kube: KubeClient, tmp_path: Path, faults: FaultReport
) -> None:
    script = f"echo try >> {tmp_path}/tries; exit 1"
    with frozen(cluster, "reconciler"):
        await create_storage(kube, "dies-failing", prepare=from_shell(script))
        await die_at_each(cluster, tmp_path, faults, ("made-job", "status-failed"))
    async with storage_object(kube, "after-failing"):
        await wait_storage_reason(kube, "after-failing", "StorageReady")
    failed = await wait_storage_reason(kube, "dies-failing", "StoragePrepareFailed")
    assert failed["status"]["prepare"]["recoveryPhase"] == "Required"
    assert (tmp_path / "tries").read_text() == "try\n"
    faults.held("a preparation that has begun is not repeated")
    await kube.delete(GPU_STORAGES.item("dies-failing", INSTANCES))
    await expect_storage_deleted(kube, "dies-failing")


@pytest.mark.faults
async def test_a_preparation_whose_job_ended_and_went_while_nobody_looked_is_not_repeated(
    cluster: RunningCluster, kube: KubeClient, tmp_path: Path, faults: FaultReport
) -> None:
    with frozen(cluster, "reconciler"):
        await create_storage(kube, "dies-unseen", prepare=from_shell(f"echo try >> {tmp_path}/tries"))
        await die_at_each(cluster, tmp_path, faults, ("resumed-job",))

        async def has_ended() -> bool:
            [job] = await jobs_of(kube, "dies-unseen")
            return is_true(job, "Complete")

        await eventually(has_ended)
        [job] = await jobs_of(kube, "dies-unseen")
        await kube.delete(JOBS.item(job["metadata"]["name"], INSTANCES), {"propagationPolicy": "Background"})
    failed = await wait_storage_reason(kube, "dies-unseen", "StoragePrepareFailed")
    assert failed["status"]["prepare"]["recoveryPhase"] == "Required"
    assert (tmp_path / "tries").read_text() == "try\n"
    faults.held("a preparation that has begun is not repeated")
    await kube.delete(GPU_STORAGES.item("dies-unseen", INSTANCES))
    await expect_storage_deleted(kube, "dies-unseen")


@pytest.mark.faults
async def test_a_copy_whose_reconciler_dies_with_the_source_in_hand_goes_on(
    cluster: RunningCluster, kube: KubeClient, tmp_path: Path, faults: FaultReport
) -> None:
    async with storage_object(kube, "dies-source", prepare=from_shell("echo data > /workspace/file")):
        await wait_storage_reason(kube, "dies-source", "StorageReady")
        with frozen(cluster, "reconciler"):
            await create_storage(kube, "dies-copying", prepare={"fromStorageName": "dies-source"})
            await die_at_each(cluster, tmp_path, faults, ("took-source", "made-job", "patched-claim", "deleted-job"))
        await wait_storage_reason(kube, "dies-copying", "StorageReady")
        assert (await directory_of(kube, "dies-copying") / "file").read_text() == "data\n"
        faults.held("a copy is whole")
        await kube.delete(GPU_STORAGES.item("dies-copying", INSTANCES))
        await expect_storage_deleted(kube, "dies-copying")
