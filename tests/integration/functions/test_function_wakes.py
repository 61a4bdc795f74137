"""The queue is looked at while calls come in, with a real NATS. How often: `tests/unit/reconciler`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from gpu_platform.clock import now_utc
from gpu_platform.controller.loop import Key
from gpu_platform.domain.functions import GPUFunctionSpec
from gpu_platform.domain.invocations import InvocationRequest, accept
from gpu_platform.domain.tenants import tenant_namespace
from gpu_platform.nats.connection import JetStream, QueueAccess, open_queue
from gpu_platform.nats.records import Records
from gpu_platform.nats.streams import ensure_consumer, ensure_streams
from reconciler.functions.scaling import Scaler
from reconciler.functions.scaling_plan import Workers
from tests.support.nats_server import queue_server
from tests.support.waiting import eventually

CALLS = 100
KEY: Key = (tenant_namespace("acme"), "resize")
SPEC = GPUFunctionSpec(spec_name="g1.1", image="example/words", max_workers=CALLS)


@pytest.fixture
async def js(tmp_path: Path) -> AsyncIterator[JetStream]:
    async with queue_server(tmp_path) as server, open_queue(QueueAccess(server.url), "test") as js:
        await ensure_streams(js)
        await ensure_consumer(js, "acme", "resize", timedelta(seconds=30))
        yield js


@asynccontextmanager
async def following(js: JetStream) -> AsyncIterator[Scaler]:
    """From the first look at all queues on."""
    looks: list[Key] = []
    scaler = Scaler(now_utc, looks.append)

    async def has_begun() -> bool:
        return bool(looks)

    task = asyncio.create_task(scaler.follow(js))
    try:
        await eventually(has_begun)
        yield scaler
    finally:
        task.cancel()
        await asyncio.wait({task})


async def enqueue(js: JetStream, number: int) -> None:
    request = InvocationRequest(function="resize", id=f"call-{number}")
    await Records(js, timedelta(hours=1)).enqueue(accept("acme", request, now_utc()))


async def test_of_a_burst_of_calls_none_is_missed(js: JetStream) -> None:
    async with following(js) as scaler:
        for number in range(CALLS):
            await enqueue(js, number)

        async def knows_all() -> bool:
            return scaler.plan(KEY, SPEC, Workers(0)).wanted == CALLS

        await eventually(knows_all)
