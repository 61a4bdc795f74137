"""Functions from zero workers and back, with real processes on the host node: only calls ask for workers."""

import asyncio
import os
import random
import signal
from contextlib import AsyncExitStack

import httpx
import pytest

from gpu_platform.clock import now_utc
from gpu_platform.devcluster.lifecycle import current_status
from gpu_platform.domain.invocations import InvocationRequest, InvocationState, accept, phases_of_cold_start
from gpu_platform.kube import KubeClient
from gpu_platform.nats.subjects import queue_subject
from tests.support.cluster_processes import pid_of
from tests.support.clusters import RunningCluster
from tests.support.fault_report import FaultReport
from tests.support.functions import SPEC, Calls, function_object, wait_function_reason, workers_of
from tests.support.units_and_stock import ensure_spec, ready_condition, stock_pool, wait_pool_available
from tests.support.units_api import spec_body
from tests.support.waiting import eventually

INVOCATIONS = "/api/v1/serverless/invocations"
IDLE_SECONDS = 2
SMALL = spec_body(
    "zero.0",
    cpu="10m",
    memory="64Mi",
    gpu=0,
    nodeSelector={"runtime.lokiwager.io/node": "host"},
    tolerations=[{"key": "runtime.lokiwager.io/host-node", "operator": "Exists"}],
)
"""On the host node, without GPUs: it has eight."""


async def no_workers(kube: KubeClient, function: str) -> None:
    async def are_gone() -> bool:
        return not await workers_of(kube, function)

    await eventually(are_gone)


async def kill_reconciler(cluster: RunningCluster, faults: FaultReport) -> None:
    """Until the cluster has another one."""
    killed = pid_of(cluster, "reconciler")
    os.kill(killed, signal.SIGKILL)

    async def is_another() -> bool:
        [status] = [each for each in current_status(cluster.directory).processes if each.name == "reconciler"]
        return status.pid not in (None, killed)

    await eventually(is_another)
    faults.hit("the death of the reconciler")


async def test_the_first_call_brings_a_worker_and_silence_takes_it_away(
    kube: KubeClient, calls: Calls, function: str, api: httpx.AsyncClient
) -> None:
    async with (
        stock_pool(kube, "zero-one", 1, specName=SPEC),
        function_object(kube, function, idleTimeoutSeconds=IDLE_SECONDS),
    ):
        await wait_function_reason(kube, function, "FunctionReady", workers=0)
        await calls.send(function, f"{function}-async")
        call = await calls.ends(f"{function}-async")
        assert (call.state, call.worker) == (InvocationState.SUCCEEDED, f"{function}-worker-0")
        assert list(phases_of_cold_start(call)) == ["queued", "woken", "claimed", "started", "ready", "answered"]
        assert list(phases_of_cold_start(call).values()) == sorted(phases_of_cold_start(call).values())

        await no_workers(kube, function)
        await wait_pool_available(kube, "zero-one", 1)

        body = {"serverlessRequestID": function, "mode": "sync", "payload": {"text": "a b c"}, "timeoutSeconds": 60}
        answer = await api.post(INVOCATIONS, json=body, timeout=90)
        assert answer.status_code == 200, answer.text
        assert answer.json()["data"]["result"]["body"]["words"] == 3
        await no_workers(kube, function)
        await wait_pool_available(kube, "zero-one", 1)


async def test_a_crowd_gets_as_many_workers_as_are_allowed_and_everybody_an_answer(
    kube: KubeClient, calls: Calls, function: str
) -> None:
    seen: set[int] = set()
    async with (
        stock_pool(kube, "zero-crowd", 2, specName=SPEC),
        function_object(kube, function, maxWorkers=2, concurrency=1, idleTimeoutSeconds=IDLE_SECONDS),
    ):
        names = [f"{function}-{number}" for number in range(12)]
        await asyncio.gather(*(calls.send(function, name, delay=0.2) for name in names))

        async def are_over() -> bool:
            seen.add(len(await workers_of(kube, function)))
            return all([(await calls.find(name)).is_over for name in names])

        await eventually(are_over, every=0.2)
        assert {(await calls.find(name)).state for name in names} == {InvocationState.SUCCEEDED}
        assert max(seen) == 2
        await no_workers(kube, function)
        await wait_pool_available(kube, "zero-crowd", 2)


async def test_without_stock_calls_wait_and_the_function_says_why(
    kube: KubeClient, calls: Calls, function: str, api: httpx.AsyncClient
) -> None:
    async with function_object(kube, function, idleTimeoutSeconds=IDLE_SECONDS):
        await calls.send(function, f"{function}-waits")
        shown = await wait_function_reason(kube, function, "NoStock", workers=0)
        assert f"no free stock of {SPEC}" in ready_condition(shown)["message"]
        health = (await api.get(f"/api/v1/serverless/functions/{function}/health")).json()["data"]
        assert (health["reason"], health["waiting"]) == ("NoStock", 1)
        async with stock_pool(kube, "zero-late", 1, specName=SPEC):
            call = await calls.ends(f"{function}-waits")
            assert call.state is InvocationState.SUCCEEDED
            await no_workers(kube, function)


@pytest.mark.parametrize(
    ("callers", "is_killed"),
    [
        (10, False),
        pytest.param(100, False, marks=pytest.mark.faults),
        pytest.param(100, True, marks=pytest.mark.faults),
    ],
    ids=["a few", "a hundred", "although the scaler dies"],
)
async def test_everybody_who_waits_for_a_cold_function_is_answered(
    cluster: RunningCluster,
    kube: KubeClient,
    function: str,
    api: httpx.AsyncClient,
    faults: FaultReport,
    callers: int,
    is_killed: bool,
) -> None:
    async def ask() -> int:
        body = {"serverlessRequestID": function, "mode": "sync", "payload": {"text": "a"}, "timeoutSeconds": 120}
        return (await api.post(INVOCATIONS, json=body, timeout=150)).status_code

    workers = 4 if callers > 10 else 2
    async with (
        stock_pool(kube, "zero-hundred", workers, specName=SPEC),
        function_object(kube, function, maxWorkers=workers, idleTimeoutSeconds=IDLE_SECONDS),
    ):
        asking = [asyncio.create_task(ask()) for _ in range(callers)]
        if is_killed:
            await eventually(lambda: workers_of(kube, function))
            await kill_reconciler(cluster, faults)
        assert await asyncio.gather(*asking) == [200] * callers
        faults.hit("callers at once", callers)
        faults.held("everybody who waits is answered")


@pytest.mark.parametrize("many", [3, pytest.param(25, marks=pytest.mark.faults)])
async def test_many_cold_functions_do_not_wait_for_one_another(
    kube: KubeClient, calls: Calls, function: str, faults: FaultReport, many: int
) -> None:
    """One of them can have no worker at all."""
    names = [f"{function}-{number}" for number in range(many)]
    await ensure_spec(kube, SMALL)
    async with stock_pool(kube, "zero-many", many, specName="zero.0"), AsyncExitStack() as stack:
        await stack.enter_async_context(function_object(kube, f"{function}-x", specName="g1.1"))
        await asyncio.gather(
            *(
                stack.enter_async_context(
                    function_object(kube, name, specName="zero.0", idleTimeoutSeconds=IDLE_SECONDS)
                )
                for name in names
            )
        )
        await calls.send(f"{function}-x", f"{function}-x")
        await asyncio.gather(*(calls.send(name, name) for name in names))
        ended = await asyncio.gather(*(calls.ends(name) for name in names))

        assert {call.state for call in ended} == {InvocationState.SUCCEEDED}
        assert (await calls.find(f"{function}-x")).state is InvocationState.QUEUED
        faults.hit("cold functions at once", many)
        faults.held("every cold function gets its worker")


@pytest.mark.parametrize(
    "is_killed", [False, pytest.param(True, marks=pytest.mark.faults)], ids=["", "and the scaler died"]
)
async def test_a_call_is_answered_although_its_wake_up_was_lost(
    cluster: RunningCluster, kube: KubeClient, calls: Calls, function: str, faults: FaultReport, is_killed: bool
) -> None:
    async with (
        stock_pool(kube, "zero-lost", 1, specName=SPEC),
        function_object(kube, function, idleTimeoutSeconds=IDLE_SECONDS),
    ):
        await wait_function_reason(kube, function, "FunctionReady", workers=0)
        request = InvocationRequest(function=function, id=function, payload={"text": "a b c"})
        await calls.records.accept(accept("default", request, now_utc()))
        await calls.js.publish(queue_subject("default", function, function))
        if is_killed:
            await kill_reconciler(cluster, faults)

        assert (await calls.ends(function)).state is InvocationState.SUCCEEDED
        faults.held("a queued call is answered")
        await no_workers(kube, function)


@pytest.mark.parametrize(
    ("many", "moment"),
    [
        (20, "the workers go"),
        pytest.param(200, "the workers go", marks=pytest.mark.faults),
        pytest.param(200, "the idle time ends", marks=pytest.mark.faults),
    ],
)
async def test_calls_that_come_just_when_the_workers_go_are_all_answered(
    kube: KubeClient, calls: Calls, function: str, faults: FaultReport, many: int, moment: str
) -> None:
    chance = random.Random(11)

    async def are_going() -> bool:
        workers = await workers_of(kube, function)
        return not workers or any("deletionTimestamp" in unit["metadata"] for unit in workers)

    async with (
        stock_pool(kube, "zero-edge", 2, specName=SPEC),
        function_object(kube, function, maxWorkers=2, concurrency=8, idleTimeoutSeconds=IDLE_SECONDS),
    ):
        await calls.send(function, function)
        await calls.ends(function)
        if moment == "the workers go":
            await eventually(are_going)
        else:
            # The race itself: shortly before or after the scaler decides to delete them.
            await asyncio.sleep(IDLE_SECONDS)

        async def send(number: int) -> str:
            await asyncio.sleep(chance.uniform(0, 0.2))
            await calls.send(function, f"{function}-{number}")
            return f"{function}-{number}"

        names = await asyncio.gather(*(send(number) for number in range(many)))
        ended = await asyncio.gather(*(calls.ends(name) for name in names))
        assert {call.state for call in ended} == {InvocationState.SUCCEEDED}
        faults.hit(f"calls when {moment}", many)
        faults.held("every call is answered")
