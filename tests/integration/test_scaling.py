"""Functions from zero workers and back, with real processes on the host node: only calls ask for workers."""

import asyncio
import secrets
from collections.abc import AsyncIterator

import httpx
import pytest

from gpu_platform.adapters.kube import KubeClient
from gpu_platform.domain.invocations import InvocationState
from tests.integration.conftest import RunningCluster
from tests.integration.host_functions import SPEC, Calls, declared, function_says, open_calls, workers_of
from tests.integration.platform import available_pool, ready_condition, stock_pool
from tests.waiting import eventually

INVOCATIONS = "/api/v1/serverless/invocations"


@pytest.fixture(scope="module")
async def calls(cluster: RunningCluster) -> AsyncIterator[Calls]:
    async with open_calls(cluster) as found:
        yield found


@pytest.fixture
def function() -> str:
    return f"zero-{secrets.token_hex(4)}"


async def no_workers(kube: KubeClient, function: str) -> None:
    async def are_gone() -> bool:
        return not await workers_of(kube, function)

    await eventually(are_gone, within=60)


async def test_the_first_call_brings_a_worker_and_silence_takes_it_away(
    kube: KubeClient, calls: Calls, function: str, api: httpx.AsyncClient
) -> None:
    async with stock_pool(kube, "zero-one", 1, specName=SPEC), declared(kube, function, idleTimeoutSeconds=2):
        await function_says(kube, function, "FunctionReady", workers=0)
        await calls.send(function, f"{function}-async")
        call = await calls.ends(f"{function}-async", within=60)
        assert (call.state, call.worker) == (InvocationState.SUCCEEDED, f"{function}-worker-0")

        await no_workers(kube, function)
        await available_pool(kube, "zero-one", 1)

        body = {"serverlessRequestID": function, "mode": "sync", "payload": {"text": "a b c"}, "timeoutSeconds": 60}
        answer = await api.post(INVOCATIONS, json=body, timeout=90)
        assert answer.status_code == 200, answer.text
        assert answer.json()["data"]["result"]["body"]["words"] == 3
        await no_workers(kube, function)
        await available_pool(kube, "zero-one", 1)


async def test_a_crowd_gets_as_many_workers_as_are_allowed_and_everybody_an_answer(
    kube: KubeClient, calls: Calls, function: str
) -> None:
    seen: set[int] = set()
    async with (
        stock_pool(kube, "zero-crowd", 2, specName=SPEC),
        declared(kube, function, maxWorkers=2, concurrency=1, idleTimeoutSeconds=5),
    ):
        names = [f"{function}-{number}" for number in range(30)]
        await asyncio.gather(*(calls.send(function, name, delay=0.2) for name in names))

        async def are_over() -> bool:
            seen.add(len(await workers_of(kube, function)))
            return all([(await calls.find(name)).is_over for name in names])

        await eventually(are_over, within=120, every=0.2)
        assert {(await calls.find(name)).state for name in names} == {InvocationState.SUCCEEDED}
        assert max(seen) == 2
        await no_workers(kube, function)
        await available_pool(kube, "zero-crowd", 2)


async def test_without_stock_calls_wait_and_the_function_says_why(
    kube: KubeClient, calls: Calls, function: str, api: httpx.AsyncClient
) -> None:
    async with declared(kube, function, idleTimeoutSeconds=2):
        await calls.send(function, f"{function}-waits")
        shown = await function_says(kube, function, "NoStock", workers=0)
        assert f"no free stock of {SPEC}" in ready_condition(shown)["message"]
        health = (await api.get(f"/api/v1/serverless/functions/{function}/health")).json()["data"]
        assert (health["reason"], health["waiting"]) == ("NoStock", 1)
        async with stock_pool(kube, "zero-late", 1, specName=SPEC):
            call = await calls.ends(f"{function}-waits", within=60)
            assert call.state is InvocationState.SUCCEEDED
            await no_workers(kube, function)
