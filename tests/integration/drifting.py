"""A ground for drift: stock without GPUs, a stack worker, and means to edit behind the API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx

from gpu_platform.adapters.kube import KubeClient, PatchType
from gpu_platform.adapters.kube.paths import GPU_UNITS
from gpu_platform.domain import names
from tests.integration.api import UNITS, patiently
from tests.integration.conftest import RunningCluster
from tests.integration.daemons import Daemon
from tests.integration.platform import INSTANCES, ensure_spec, stock_pool
from tests.integration.renting import forget, rent, spec_body
from tests.integration.stack_workers import StackPlace, clear_index, forgotten, stack_worker, unit_stack

Json = dict[str, Any]

SPEC = "drift.0"
"""Without GPUs: fifty units must find a place."""


@asynccontextmanager
async def drifting_stock(kube: KubeClient, pool: str, replicas: int) -> AsyncIterator[None]:
    body = spec_body(SPEC)
    body["spec"] |= {"gpu": 0, "cpu": "1m", "memory": "1Mi"}
    await ensure_spec(kube, body)
    async with stock_pool(kube, pool, replicas, specName=SPEC):
        yield


@asynccontextmanager
async def cleared_worker(
    cluster: RunningCluster, kube: KubeClient, place: StackPlace, **settings: str
) -> AsyncIterator[Daemon]:
    """A stack worker that finds no stacks, and leaves none."""
    await clear_index(kube)
    async with stack_worker(cluster, place, settings=settings) as daemon:
        yield daemon
    await clear_index(kube)


def accepted_spec_of(item: Json) -> str:
    return str(item["metadata"]["annotations"][names.ANNOTATION_ACCEPTED_SPEC])


async def rent_one(api: httpx.AsyncClient, name: str, **fields: Any) -> Json:
    return await rent(api, name, specName=SPEC, **fields)


async def edit(kube: KubeClient, name: str, **spec: Any) -> None:
    """As `kubectl edit` does."""
    await kube.patch(GPU_UNITS.item(name, INSTANCES), {"spec": spec}, PatchType.MERGE)


async def end(api: httpx.AsyncClient, kube: KubeClient, *units: str) -> None:
    for name in units:
        assert (await patiently(partial(api.delete, f"{UNITS}/{name}"))).status_code == 204
    for name in units:
        await forgotten(kube, unit_stack(name))
        await forget(kube, name)
