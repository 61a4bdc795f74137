"""What operators do over REST: seed stock, keep pools, wait for jobs; and nothing of it is left afterwards."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import FINAL_PHASES, operation_name
from gpu_platform.kube import KubeClient, NotFoundError
from gpu_platform.kube.paths import GPU_SPECS, OPERATIONS, STOCK_POOLS
from tests.support.units_and_stock import STOCK, find, stock_of
from tests.support.waiting import NotYet, eventually

STOCK_UNITS = "/api/v1/operator/stock-units"
POOLS = "/api/v1/operator/stockpools"
JOBS = "/api/v1/operator/jobs"


def new_id() -> str:
    return f"job-{secrets.token_hex(4)}"


def seed_request(operation_id: str, **fields: Any) -> Json:
    return {"operationID": operation_id, "specName": "g1.1", "replicas": 1, **fields}


async def wait_job(api: httpx.AsyncClient, operation_id: str, within: float = 180) -> Json:
    async def ended() -> Json | None:
        job: Json = (await api.get(f"{JOBS}/{operation_id}")).json()["data"]
        return job if job["status"] in ("succeeded", "failed") else None

    return await eventually(ended, within)


@asynccontextmanager
async def new_operation(kube: KubeClient) -> AsyncIterator[str]:
    """A new operationID; its record, pool and stock are gone afterwards.

    It ends first: the reconciler that still works on an operation makes the pool again.
    """
    operation_id = new_id()
    path = OPERATIONS.item(operation_name("", operation_id), STOCK)
    try:
        yield operation_id
    finally:
        if await find(kube, path) is not None:
            operation = await eventually(lambda: _find_ended(kube, path))
            await remove(kube, path)
            await remove_pool(kube, operation["spec"]["target"]["name"])


async def _find_ended(kube: KubeClient, path: str) -> Json | NotYet:
    operation = await kube.get(path)
    return operation if operation.get("status", {}).get("phase") in FINAL_PHASES else NotYet(operation)


@asynccontextmanager
async def new_spec_name(kube: KubeClient) -> AsyncIterator[str]:
    """The name of a spec that is not in the catalogue, neither before nor after."""
    name = f"s{secrets.token_hex(3)}.1"
    try:
        yield name
    finally:
        await remove(kube, GPU_SPECS.item(name))


async def remove_pool(kube: KubeClient, name: str) -> None:
    await remove(kube, STOCK_POOLS.item(name, STOCK))

    async def is_gone() -> bool:
        return not await stock_of(kube, name)

    await eventually(is_gone)


async def remove(kube: KubeClient, path: str) -> None:
    try:
        await kube.delete(path)
    except NotFoundError:
        return
