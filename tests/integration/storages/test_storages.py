"""Storages on the real API server, filled and shown by real processes on the host node: the parity checks."""

import asyncio
from pathlib import Path

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, KubeError
from gpu_platform.kube.paths import (
    DEPLOYMENTS,
    EVENTS,
    GPU_STORAGES,
    GPU_UNITS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    SERVICES,
)
from tests.support.audit_log import AuditLog
from tests.support.clusters import RunningCluster
from tests.support.namespaces import create_namespace
from tests.support.storages import (
    change_storage,
    create_storage,
    directory_of,
    expect_pvc_deleted,
    expect_storage_deleted,
    from_shell,
    get_storage,
    host_unit,
    jobs_of,
    read_from_accessor,
    recover_storage,
    send_to_accessor,
    storage_body,
    storage_object,
    wait_file_content,
    wait_storage_reason,
)
from tests.support.units_and_stock import (
    INSTANCES,
    STOCK,
    create_unit,
    delete_unit,
    find,
    get_unit,
    ready_condition,
    unit_body,
    wait_unit_phase,
)
from tests.support.waiting import eventually


async def test_a_storage_is_pending_until_its_claim_is_bound_and_then_ready_with_its_capacity(
    kube: KubeClient,
) -> None:
    """Parity 40. The class is the cluster's default."""
    async with storage_object(kube, "parity-40"):
        ready = await wait_storage_reason(kube, "parity-40", "StorageReady")
        assert ready["status"]["phase"] == "Ready"
        assert (ready["status"]["claimName"], ready["status"]["capacity"]) == ("parity-40", "1Gi")
        assert ready["metadata"]["finalizers"] == [names.STORAGE_FINALIZER]
        claim = await kube.get(PERSISTENT_VOLUME_CLAIMS.item("parity-40", INSTANCES))
        assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
        assert claim["spec"]["storageClassName"] == "host-path"
        assert "ownerReferences" not in claim["metadata"]
    await expect_pvc_deleted(kube, "parity-40")


async def test_a_storage_of_a_class_that_nobody_serves_stays_pending(kube: KubeClient) -> None:
    """Parity 40."""
    async with storage_object(kube, "unserved", storageClassName="nobody"):
        pending = await wait_storage_reason(kube, "unserved", "StoragePending")
        assert pending["status"]["phase"] == "Pending"
        assert "capacity" not in pending["status"]

        async def says_why() -> bool:
            return (
                "there is no storage class 'nobody'" in ready_condition(await get_storage(kube, "unserved"))["message"]
            )

        await eventually(says_why)


async def test_an_image_fills_the_storage_once_at_workspace(kube: KubeClient, tmp_path: Path) -> None:
    """Parity 42."""
    fill = f"echo filled >> /workspace/file; while ! test -e {tmp_path}/go; do sleep 0.1; done"
    async with storage_object(kube, "parity-42", prepare=from_shell(fill)):
        await wait_storage_reason(kube, "parity-42", "StoragePrepareRunning")
        (tmp_path / "go").touch()
        ready = await wait_storage_reason(kube, "parity-42", "StorageReady")
        prepare = ready["status"]["prepare"]
        assert prepare["phase"] == "Succeeded"
        assert prepare["recoveryPhase"] == "None"
        assert prepare["jobName"].startswith("prep-parity-42-")
        assert (await directory_of(kube, "parity-42") / "file").read_text() == "filled\n"
        [job] = await jobs_of(kube, "parity-42")
        await kube.delete(f"/apis/batch/v1/namespaces/{INSTANCES}/jobs/{job['metadata']['name']}")
        await change_storage(kube, "parity-42", retain=True)
        await wait_storage_reason(kube, "parity-42", "StorageReady")
        assert (await directory_of(kube, "parity-42") / "file").read_text() == "filled\n"
        await change_storage(kube, "parity-42", retain=False)


async def test_a_copy_waits_until_its_source_is_ready(kube: KubeClient) -> None:
    """Parity 43."""
    async with storage_object(kube, "parity-43", prepare={"fromStorageName": "parity-43-source"}):
        waiting = await wait_storage_reason(kube, "parity-43", "StoragePreparePending")
        assert "parity-43-source, which is not there" in ready_condition(waiting)["message"]
        async with storage_object(
            kube, "parity-43-source", prepare=from_shell("mkdir /workspace/a; echo b > /workspace/a/b")
        ):
            await wait_storage_reason(kube, "parity-43", "StorageReady")
            assert (await directory_of(kube, "parity-43") / "a" / "b").read_text() == "b\n"

            async def source_is_free() -> bool:
                annotations = (await get_storage(kube, "parity-43-source"))["metadata"].get("annotations", {})
                return names.ANNOTATION_MOUNTED_BY not in annotations

            await eventually(source_is_free)


async def test_a_failed_preparation_waits_for_somebody_to_ask_and_is_then_repeated(
    kube: KubeClient, tmp_path: Path
) -> None:
    """Parity 44."""
    script = f"date +%N >> {tmp_path}/tries; echo no luck >&2; test -e {tmp_path}/luck"
    async with storage_object(kube, "parity-44", prepare=from_shell(script)):
        failed = await wait_storage_reason(kube, "parity-44", "StoragePrepareFailed")
        assert failed["status"]["phase"] == "Failed"
        assert failed["status"]["prepare"]["recoveryPhase"] == "Required"
        assert "no luck" in failed["status"]["prepare"]["message"]
        [job] = await jobs_of(kube, "parity-44")
        await kube.delete(
            f"/apis/batch/v1/namespaces/{INSTANCES}/jobs/{job['metadata']['name']}",
            {"propagationPolicy": "Background"},
        )
        await change_storage(kube, "parity-44", size="2Gi")
        await wait_storage_reason(kube, "parity-44", "StoragePrepareFailed")
        assert len((tmp_path / "tries").read_text().splitlines()) == 1
        (tmp_path / "luck").touch()
        await recover_storage(kube, "parity-44", "again")
        ready = await wait_storage_reason(kube, "parity-44", "StorageReady")
        assert ready["status"]["prepare"]["recoveryPhase"] == "Succeeded"
        assert ready["status"]["prepare"]["jobName"] != job["metadata"]["name"]
        assert len((tmp_path / "tries").read_text().splitlines()) == 2


async def test_a_storage_grows_and_does_not_shrink(kube: KubeClient) -> None:
    """Parity 45."""
    async with storage_object(kube, "parity-45"):
        await wait_storage_reason(kube, "parity-45", "StorageReady")
        await change_storage(kube, "parity-45", size="3Gi")

        async def has_grown() -> bool:
            return bool((await get_storage(kube, "parity-45"))["status"]["capacity"] == "3Gi")

        await eventually(has_grown)
        with pytest.raises(KubeError, match="cannot shrink"):
            await change_storage(kube, "parity-45", size="2Gi")


async def test_the_file_browser_shows_what_is_there_and_goes_when_it_is_switched_off(kube: KubeClient) -> None:
    """Parity 45."""
    accessor = names.accessor_name("shown")
    async with storage_object(kube, "shown", prepare=from_shell("echo hello > /workspace/greeting")):
        ready = await wait_storage_reason(kube, "shown", "StorageReady")
        assert ready["status"]["accessor"]["phase"] == "Disabled"
        assert await find(kube, DEPLOYMENTS.item(accessor, INSTANCES)) is None
        await change_storage(kube, "shown", accessor={"enabled": True})

        async def answers() -> Json | None:
            status = (await get_storage(kube, "shown"))["status"]["accessor"]
            return status if status["phase"] == "Ready" else None

        status = await eventually(answers)
        assert status["accessURL"] == f"http://{accessor}.{INSTANCES}.svc.cluster.local:5000/"
        assert await read_from_accessor(kube, "shown", "greeting") == (200, "hello\n")
        assert (await send_to_accessor(kube, "shown", "PUT", "greeting"))[0] == 501
        await change_storage(kube, "shown", accessor={"enabled": False})

        async def is_gone() -> bool:
            left = [await find(kube, path.item(accessor, INSTANCES)) for path in (DEPLOYMENTS, SERVICES)]
            return left == [None, None]

        await eventually(is_gone)


async def test_a_broken_file_browser_blocks_nobody(kube: KubeClient) -> None:
    """Somebody else has its name."""
    name = names.accessor_name("broken")
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": INSTANCES},
        "spec": {"ports": [{"port": 1}]},
    }
    await kube.create(SERVICES.collection(INSTANCES), service)
    try:
        async with storage_object(kube, "broken", accessor={"enabled": True}):
            ready = await wait_storage_reason(kube, "broken", "StorageReady")
            assert ready["status"]["accessor"]["phase"] in ("Failed", "Pending")
            await create_unit(kube, host_unit("beside-broken", "broken"))
            await wait_unit_phase(kube, "beside-broken", "Ready")
            await delete_unit(kube, "beside-broken")
    finally:
        await kube.delete(SERVICES.item(name, INSTANCES))


async def test_a_mounted_storage_is_deleted_only_when_its_unit_is_gone(kube: KubeClient) -> None:
    """Parity 46, against kubectl."""
    await create_storage(kube, "parity-46")
    await create_unit(kube, host_unit("uses-46", "parity-46", script="echo kept > /mnt/parity-46/file; sleep 3600"))
    await wait_unit_phase(kube, "uses-46", "Ready")

    async def is_mounted() -> bool:
        return bool((await get_storage(kube, "parity-46"))["status"].get("mountedBy") == ["uses-46"])

    await eventually(is_mounted)
    await kube.delete(GPU_STORAGES.item("parity-46", INSTANCES))
    held = await wait_storage_reason(kube, "parity-46", "StorageInUse")
    assert held["status"]["phase"] == "Terminating"
    assert "unit/uses-46" in ready_condition(held)["message"]
    await wait_file_content(await directory_of(kube, "parity-46") / "file", "kept\n")

    async def was_told() -> bool:
        selector = "involvedObject.name=parity-46,reason=StorageInUse"
        return bool((await kube.get(EVENTS.collection(INSTANCES), {"fieldSelector": selector}))["items"])

    await eventually(was_told)
    await delete_unit(kube, "uses-46")
    await expect_storage_deleted(kube, "parity-46")
    await expect_pvc_deleted(kube, "parity-46")


async def test_what_is_retained_outlives_its_storage_and_comes_back_with_it(kube: KubeClient) -> None:
    prepare = from_shell("echo once >> /workspace/file")
    async with storage_object(kube, "retained", retain=True, prepare=prepare):
        await wait_storage_reason(kube, "retained", "StorageReady")
        directory = await directory_of(kube, "retained")
    assert (directory / "file").read_text() == "once\n"
    async with storage_object(kube, "retained", prepare=prepare):
        again = await wait_storage_reason(kube, "retained", "StorageReady")
        assert again["status"]["prepare"]["phase"] == "Succeeded"
        assert (await directory_of(kube, "retained") / "file").read_text() == "once\n"
    await expect_pvc_deleted(kube, "retained")


async def test_a_unit_waits_until_its_storage_is_ready(kube: KubeClient, tmp_path: Path) -> None:
    """Parity 34. Without GPUs, too."""
    script = f"while ! test -e {tmp_path}/go; do sleep 0.1; done; echo 42 > /workspace/answer"
    async with storage_object(kube, "parity-34", prepare=from_shell(script)):
        body = host_unit("waits-34", "parity-34", script="cat /mnt/parity-34/answer; sleep 3600", gpu=0)
        await create_unit(kube, body)
        waiting = await wait_unit_phase(kube, "waits-34", "Progressing")
        assert ready_condition(waiting)["reason"] == "StorageNotReady"
        assert "parity-34" in ready_condition(waiting)["message"]
        assert await find(kube, DEPLOYMENTS.item(names.child_name("waits-34"), INSTANCES)) is None
        (tmp_path / "go").touch()
        await wait_unit_phase(kube, "waits-34", "Ready")
        await delete_unit(kube, "waits-34")


async def test_stock_with_mounts_and_mounts_of_nothing_are_invalid(kube: KubeClient) -> None:
    """Parity 15."""
    mounts = [{"name": "nowhere", "mountPath": "/data"}]
    for namespace in (STOCK, INSTANCES):
        await create_unit(kube, unit_body("parity-15", namespace=namespace, storageMounts=mounts))
        failed = await wait_unit_phase(kube, "parity-15", "Failed", namespace)
        assert ready_condition(failed)["reason"] == "StorageMountInvalid"
        await delete_unit(kube, "parity-15", namespace)


async def test_a_storage_is_mounted_by_one_unit_at_a_time_and_handed_on(kube: KubeClient) -> None:
    async with storage_object(kube, "shared"):
        await wait_storage_reason(kube, "shared", "StorageReady")
        await create_unit(kube, host_unit("first-user", "shared", script="echo one >> /mnt/shared/f; sleep 3600"))
        await wait_unit_phase(kube, "first-user", "Ready")
        await create_unit(kube, host_unit("second-user", "shared", script="echo two >> /mnt/shared/f; sleep 3600"))
        refused = await wait_unit_phase(kube, "second-user", "Failed")
        assert ready_condition(refused)["reason"] == "StorageMountInvalid"
        assert "unit/first-user" in ready_condition(refused)["message"]
        await kube.patch(GPU_UNITS.item("first-user", INSTANCES), {"spec": {"storageMounts": []}})
        await wait_unit_phase(kube, "second-user", "Ready")
        assert (await get_unit(kube, "first-user"))["spec"].get("storageMounts", []) == []
        await wait_file_content(await directory_of(kube, "shared") / "f", "one\ntwo\n")
        await wait_unit_phase(kube, "first-user", "Ready")
        for name in ("first-user", "second-user"):
            await delete_unit(kube, name)


async def test_a_storage_goes_with_its_namespace_mounted_or_not(kube: KubeClient) -> None:
    namespace = f"{names.INSTANCE_NAMESPACE_PREFIX}leaving"
    await create_namespace(kube, namespace)
    for name in ("mounted", "free"):
        body = storage_body(name)
        body["metadata"]["namespace"] = namespace
        await kube.create(GPU_STORAGES.collection(namespace), body)
    mounts = [{"name": "mounted", "mountPath": "/data"}]
    await create_unit(kube, unit_body("user", namespace=namespace, storageMounts=mounts, gpu=0))
    await wait_unit_phase(kube, "user", "Ready", namespace)
    await kube.delete(NAMESPACES.item(namespace))

    async def is_gone() -> bool:
        return await find(kube, NAMESPACES.item(namespace)) is None

    await eventually(is_gone)


async def test_a_claim_that_is_deleted_behind_the_platform_is_told_and_not_made_anew(kube: KubeClient) -> None:
    async with storage_object(kube, "robbed"):
        await wait_storage_reason(kube, "robbed", "StorageReady")
        await kube.delete(PERSISTENT_VOLUME_CLAIMS.item("robbed", INSTANCES))
        await expect_pvc_deleted(kube, "robbed")
        await wait_storage_reason(kube, "robbed", "StorageClaimLost")
        assert await find(kube, PERSISTENT_VOLUME_CLAIMS.item("robbed", INSTANCES)) is None


async def test_a_claim_that_is_not_the_platforms_is_not_touched(kube: KubeClient) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "foreign", "namespace": INSTANCES},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    await kube.create(PERSISTENT_VOLUME_CLAIMS.collection(INSTANCES), claim)
    async with storage_object(kube, "foreign"):
        failed = await wait_storage_reason(kube, "foreign", "StoragePVCSyncFailed")
        assert "not the platform's" in ready_condition(failed)["message"]
    await kube.delete(PERSISTENT_VOLUME_CLAIMS.item("foreign", INSTANCES))


async def test_a_second_pass_writes_nothing(kube: KubeClient, cluster: RunningCluster) -> None:
    async with storage_object(kube, "quiet", prepare=from_shell("true"), accessor={"enabled": True}):
        await wait_storage_reason(kube, "quiet", "StorageReady")
        await create_unit(kube, host_unit("quiet-user", "quiet"))
        await wait_unit_phase(kube, "quiet-user", "Ready")

        async def is_calm() -> bool:
            status = (await get_storage(kube, "quiet"))["status"]
            return bool(status["accessor"]["phase"] == "Ready" and status.get("mountedBy") == ["quiet-user"])

        def find_writes(log: AuditLog) -> list[str]:
            written = [event["objectRef"].get("name", "") for event in log.writes()]
            return [name for name in written if "quiet" in name and "after-quiet" not in name]

        async def is_quiet() -> bool:
            """Events come after what they tell of."""
            log = AuditLog.from_here(cluster.directory.audit_log)
            await asyncio.sleep(1)
            return not find_writes(log)

        await eventually(is_calm)
        await eventually(is_quiet)
        log = AuditLog.from_here(cluster.directory.audit_log)
        body = {"metadata": {"labels": {"touched": "yes"}}}
        await kube.patch(GPU_STORAGES.item("quiet", INSTANCES), body)
        await kube.patch(PERSISTENT_VOLUME_CLAIMS.item("quiet", INSTANCES), body)
        await kube.patch(GPU_UNITS.item("quiet-user", INSTANCES), body)
        await create_unit(kube, host_unit("after-quiet"))
        await wait_unit_phase(kube, "after-quiet", "Ready")
        assert find_writes(log) == []
        for name in ("quiet-user", "after-quiet"):
            await delete_unit(kube, name)
