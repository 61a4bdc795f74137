"""What a tenant does with storages over REST, as the tests do it: make, mount, throw away."""

from typing import Any

import httpx

from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient
from tests.support.units_api import delete_operations
from tests.support.waiting import NotYet, eventually

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
