"""A ground for drift: stock without GPUs, and means to edit behind the API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from gpu_platform.adapters.kube import KubeClient, PatchType
from gpu_platform.adapters.kube.paths import GPU_UNITS
from tests.integration.platform import INSTANCES, ensure_spec, stock_pool
from tests.integration.renting import rent, spec_body

Json = dict[str, Any]

SPEC = "drift.0"
"""Without GPUs: fifty units must find a place."""


@asynccontextmanager
async def drifting_stock(kube: KubeClient, pool: str, replicas: int) -> AsyncIterator[None]:
    await ensure_spec(kube, spec_body(SPEC, gpu=0, cpu="1m", memory="1Mi"))
    async with stock_pool(kube, pool, replicas, specName=SPEC):
        yield


async def rent_one(api: httpx.AsyncClient, name: str, **fields: Any) -> Json:
    return await rent(api, name, specName=SPEC, **fields)


async def edit(kube: KubeClient, name: str, **spec: Any) -> None:
    """As `kubectl edit` does."""
    await kube.patch(GPU_UNITS.item(name, INSTANCES), {"spec": spec}, PatchType.MERGE)
