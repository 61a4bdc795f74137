"""A ground for drift: stock without GPUs, and means to edit behind the API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, PatchType
from gpu_platform.kube.paths import GPU_UNITS
from tests.support.units_and_stock import INSTANCES, ensure_spec, stock_pool
from tests.support.units_api import post_ready_unit, spec_body

SPEC = "drift.0"
"""Without GPUs: fifty units must find a place."""


@asynccontextmanager
async def drifting_stock(kube: KubeClient, pool: str, replicas: int) -> AsyncIterator[None]:
    await ensure_spec(kube, spec_body(SPEC, gpu=0, cpu="1m", memory="1Mi"))
    async with stock_pool(kube, pool, replicas, specName=SPEC):
        yield


async def post_drift_unit(api: httpx.AsyncClient, name: str, **fields: Any) -> Json:
    return await post_ready_unit(api, name, specName=SPEC, **fields)


async def edit_unit(kube: KubeClient, name: str, **spec: Any) -> None:
    """As `kubectl edit` does."""
    await kube.patch(GPU_UNITS.item(name, INSTANCES), {"spec": spec}, PatchType.MERGE)
