"""What tests do on the platform with `kubectl`'s means: make pools and units, claim stock, wait for phases."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stock import Claim, is_available, rank_stock
from gpu_platform.kube import KubeClient, NotFoundError, PatchType
from gpu_platform.kube.paths import GPU_SPECS, GPU_UNITS, STOCK_POOLS
from gpu_platform.store.unit_acquisition import try_claim
from tests.support.waiting import NotYet, eventually

INSTANCES = names.DEFAULT_INSTANCE_NAMESPACE
STOCK = names.STOCK_NAMESPACE


def unit_body(name: str, *, namespace: str = INSTANCES, stock: Json | None = None, **spec: Any) -> Json:
    """A unit as kubectl would send it; with `stock`, one that takes over that claimed stock."""
    metadata: Json = {"name": name, "namespace": namespace}
    if stock is not None:
        metadata["labels"] = {names.LABEL_POOL: stock["metadata"]["labels"][names.LABEL_POOL]}
        metadata["annotations"] = {
            names.ANNOTATION_SOURCE_STOCK_NAME: stock["metadata"]["name"],
            names.ANNOTATION_SOURCE_STOCK_NAMESPACE: STOCK,
        }
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUUnit",
        "metadata": metadata,
        "spec": {"specName": "g1.1", "image": "example/train", **spec},
    }


async def create_unit(kube: KubeClient, body: Json) -> Json:
    return await kube.create(GPU_UNITS.collection(body["metadata"]["namespace"]), body)


async def ensure_spec(kube: KubeClient, spec: Json) -> None:
    path = GPU_SPECS.item(spec["metadata"]["name"])
    await kube.patch(path, spec, PatchType.APPLY, {"fieldManager": "tests"})


async def get_unit(kube: KubeClient, name: str, namespace: str = INSTANCES) -> Json:
    return await kube.get(GPU_UNITS.item(name, namespace))


async def find(kube: KubeClient, path: str) -> Json | None:
    try:
        return await kube.get(path)
    except NotFoundError:
        return None


async def wait_unit_phase(
    kube: KubeClient, name: str, phase: str, namespace: str = INSTANCES, within: float = 180.0
) -> Json:
    async def in_phase() -> Json | NotYet:
        unit = await get_unit(kube, name, namespace)
        return unit if unit.get("status", {}).get("phase") == phase else NotYet(unit.get("status"))

    return await eventually(in_phase, within=within)


def ready_condition(item: Json) -> Json:
    [condition] = [each for each in item["status"]["conditions"] if each["type"] == "Ready"]
    return dict(condition)


async def delete_unit(kube: KubeClient, name: str, namespace: str = INSTANCES) -> None:
    try:
        await kube.delete(GPU_UNITS.item(name, namespace))
    except NotFoundError:
        return

    async def is_gone() -> bool:
        return await find(kube, GPU_UNITS.item(name, namespace)) is None

    await eventually(is_gone)


async def wait_pool_available(kube: KubeClient, name: str, available: int, within: float = 180.0) -> Json:
    """The pool once it says that it has this many free units, and has: its status follows a claim by seconds."""

    async def is_full() -> Json | NotYet:
        pool = await kube.get(STOCK_POOLS.item(name, STOCK))
        status = pool.get("status", {})
        stock = await stock_of(kube, name)
        is_current = status.get("observedGeneration") == pool["metadata"]["generation"]
        if is_current and status.get("available") == available == sum(map(is_available, stock)):
            return pool
        return NotYet({"pool": status, "stock": {each["metadata"]["name"]: each.get("status") for each in stock}})

    return await eventually(is_full, within=within)


async def stock_of(kube: KubeClient, pool: str) -> list[Json]:
    answer = await kube.get(GPU_UNITS.collection(STOCK), {"labelSelector": f"{names.LABEL_POOL}={pool}"})
    return list(answer["items"])


@asynccontextmanager
async def stock_pool(kube: KubeClient, name: str, replicas: int, **spec: Any) -> AsyncIterator[Json]:
    """A filled pool; it and its stock are gone afterwards."""
    body = {
        "apiVersion": names.API_VERSION,
        "kind": "StockPool",
        "metadata": {"name": name, "namespace": STOCK},
        "spec": {"specName": "g1.1", "replicas": replicas, **spec},
    }
    await kube.create(STOCK_POOLS.collection(STOCK), body)
    try:
        yield await wait_pool_available(kube, name, replicas, within=180 + replicas)
    finally:
        await kube.delete(STOCK_POOLS.item(name, STOCK))

        async def is_gone() -> bool:
            return not await stock_of(kube, name)

        await eventually(is_gone, within=180 + replicas)


async def claim(kube: KubeClient, pool: str, unit: str, namespace: str = INSTANCES, spec: str = "g1.1") -> Json:
    """Take the oldest free stock of the pool for this unit."""
    return await claim_oldest(kube, await stock_of(kube, pool), spec, names.claim_holder(namespace, unit), f"op-{unit}")


async def claim_oldest(kube: KubeClient, stock: Iterable[Json], spec: str, holder: str, operation: str) -> Json:
    for candidate in rank_stock(stock, spec):
        if taken := await try_claim(kube, candidate, Claim(holder, operation), datetime.now(UTC)):
            return taken
    raise AssertionError("no free stock")
