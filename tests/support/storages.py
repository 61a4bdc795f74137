"""Storages: made with `kubectl` or over REST, mounted by units, and deleted."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import httpx

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, NotFoundError
from gpu_platform.kube.paths import GPU_STORAGES, JOBS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from tests.support.units_and_stock import INSTANCES, find, ready_condition, unit_body
from tests.support.units_api import delete_operations
from tests.support.waiting import NotYet, eventually


def storage_body(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUStorage",
        "metadata": {"name": name, "namespace": INSTANCES},
        "spec": {"size": "1Gi", **spec},
    }


def from_shell(script: str) -> Json:
    return {"fromImage": "none", "command": ["sh", "-c", script]}


def host_unit(name: str, *storages: str, script: str = "sleep 3600", **spec: Any) -> Json:
    mounts = [{"name": storage_object, "mountPath": f"/mnt/{storage_object}"} for storage_object in storages]
    template = {"command": ["sh", "-c", script]}
    return unit_body(name, specName="host.1", image=None, template=template, storageMounts=mounts, **spec)


async def create_storage(kube: KubeClient, name: str, **spec: Any) -> Json:
    return await kube.create(GPU_STORAGES.collection(INSTANCES), storage_body(name, **spec))


async def get_storage(kube: KubeClient, name: str) -> Json:
    return await kube.get(GPU_STORAGES.item(name, INSTANCES))


async def wait_storage_reason(kube: KubeClient, name: str, reason: str) -> Json:
    """The storage, once its Ready condition has this reason, for its newest spec."""

    async def said() -> Json | None:
        storage = await find(kube, GPU_STORAGES.item(name, INSTANCES))
        if storage is None or "conditions" not in storage.get("status", {}):
            return None
        is_current = storage["status"]["observedGeneration"] == storage["metadata"]["generation"]
        return storage if is_current and ready_condition(storage)["reason"] == reason else None

    try:
        return await eventually(said)
    except AssertionError:
        storage = await find(kube, GPU_STORAGES.item(name, INSTANCES))
        raise AssertionError(f"{reason} was not said; it is {storage}") from None


async def change_storage(kube: KubeClient, name: str, **spec: Any) -> None:
    await kube.patch(GPU_STORAGES.item(name, INSTANCES), {"spec": spec})


async def recover_storage(kube: KubeClient, name: str, nonce: str) -> None:
    body = {"metadata": {"annotations": {names.ANNOTATION_RECOVERY_NONCE: nonce}}}
    await kube.patch(GPU_STORAGES.item(name, INSTANCES), body)


async def jobs_of(kube: KubeClient, name: str) -> list[Json]:
    answer = await kube.get(JOBS.collection(INSTANCES), {"labelSelector": f"{names.LABEL_STORAGE}={name}"})
    return list(answer["items"])


async def directory_of(kube: KubeClient, name: str) -> Path:
    """Where the storage's files are on this machine."""
    claim = await kube.get(PERSISTENT_VOLUME_CLAIMS.item(name, INSTANCES))
    volume = await kube.get(PERSISTENT_VOLUMES.item(claim["spec"]["volumeName"]))
    return Path(volume["spec"]["hostPath"]["path"])


async def delete_storage(kube: KubeClient, name: str) -> None:
    try:
        await kube.delete(GPU_STORAGES.item(name, INSTANCES))
    except NotFoundError:
        return
    await expect_storage_deleted(kube, name)


async def expect_storage_deleted(kube: KubeClient, name: str) -> None:
    await _expect_deleted(kube, GPU_STORAGES.item(name, INSTANCES))


async def expect_pvc_deleted(kube: KubeClient, name: str) -> None:
    await _expect_deleted(kube, PERSISTENT_VOLUME_CLAIMS.item(name, INSTANCES))


async def _expect_deleted(kube: KubeClient, path: str) -> None:
    async def is_gone() -> bool:
        return await find(kube, path) is None

    await eventually(is_gone)


@asynccontextmanager
async def storage_object(kube: KubeClient, name: str, **spec: Any) -> AsyncIterator[Json]:
    """It is gone afterwards, with its data."""
    try:
        yield await create_storage(kube, name, **spec)
    finally:
        await delete_storage(kube, name)


async def wait_file_content(file: Path, text: str) -> None:
    """A unit without a probe is Ready once its process is there, which may not have written yet."""

    async def says() -> bool:
        return file.is_file() and file.read_text() == text

    await eventually(says)


async def send_to_accessor(kube: KubeClient, name: str, method: str, path: str) -> tuple[int, str]:
    [pod] = (
        await kube.get(
            PODS.collection(INSTANCES),
            {"labelSelector": f"{names.LABEL_STORAGE}={name},{names.LABEL_STORAGE_ACCESSOR}"},
        )
    )["items"]
    address = pod["metadata"]["annotations"][names.ANNOTATION_HOST_ADDRESS]
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"http://{address}:5000/{path}") as answer,
    ):
        return answer.status, await answer.text()


async def read_from_accessor(kube: KubeClient, name: str, path: str) -> tuple[int, str]:
    return await send_to_accessor(kube, name, "GET", path)


def lingering_pod(unit: str, storage: str) -> Json:
    """Of a unit that is gone, a pod that may still write: no node takes it, and so it neither runs nor ends."""
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY_VALUE, names.LABEL_UNIT: unit}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"lingers-{unit}", "namespace": INSTANCES, "labels": labels},
        "spec": {
            "nodeSelector": {"example.com/no-such-node": "true"},
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": storage}}],
            "containers": [{"name": "worker", "image": "example/train"}],
        },
    }


STORAGES = "/api/v1/gpu-storages"


def build_storage_request(name: str, **fields: Any) -> Json:
    return {"operationID": f"op-storage-{name}", "name": name, "size": "1Gi", **fields}


def build_mounts(*storages: str) -> list[Json]:
    return [{"name": storage, "mountPath": f"/mnt/{storage}"} for storage in storages]


async def post_storage(api: httpx.AsyncClient, name: str, **fields: Any) -> Json:
    answer = await api.post(STORAGES, json=build_storage_request(name, **fields))
    # 200, where the first try was answered with a 503 and finished in the background.
    assert answer.status_code in (200, 201), answer.text
    view: Json = answer.json()["data"]
    return view


async def get_storage_view(api: httpx.AsyncClient, name: str) -> Json:
    answer = await api.get(f"{STORAGES}/{name}")
    assert answer.status_code == 200, answer.text
    view: Json = answer.json()["data"]
    return view


async def wait_storage_view(api: httpx.AsyncClient, name: str, phase: str) -> Json:
    """Once what was asked for last is what is shown."""

    async def is_there() -> Json | NotYet:
        view = await get_storage_view(api, name)
        is_current = view.get("observedGeneration") == view["generation"]
        return view if is_current and view["phase"] == phase else NotYet(view)

    return await eventually(is_there)


async def wait_unmounted(api: httpx.AsyncClient, name: str) -> None:
    """Nobody mounts it: of a unit that is gone, the reconciler gives it back a moment later."""

    async def is_unmounted() -> bool:
        return not (await get_storage_view(api, name))["mountedBy"]

    await eventually(is_unmounted)


async def remove_storage(api: httpx.AsyncClient, kube: KubeClient, name: str) -> None:
    """Also its record, so that the next test may use the same operationID."""

    async def is_gone() -> bool:
        # Refused as long as somebody mounts it.
        await api.delete(f"{STORAGES}/{name}")
        return (await api.get(f"{STORAGES}/{name}")).status_code == 404

    await eventually(is_gone)
    await delete_operations(kube, name)
