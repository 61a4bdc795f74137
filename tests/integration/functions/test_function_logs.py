"""What workers write outlives them: real processes on the host node, followed by the reconciler, read over REST."""

import asyncio
import sys

import httpx

from gpu_platform.domain.invocations import InvocationState
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import PODS
from tests.architecture.repository import ROOT
from tests.support.api import code_of
from tests.support.functions import (
    FUNCTIONS,
    SPEC,
    Calls,
    change_function,
    function_object,
    pod_of,
    wait_function_reason,
    workers_of,
)
from tests.support.host_pods import is_without_processes
from tests.support.units_and_stock import INSTANCES, stock_pool
from tests.support.waiting import NotYet, eventually

TALKING = {"command": [sys.executable, "-m", "serverless.framework", f"{ROOT}/tests/support/talking_function.py:talk"]}


async def read(api: httpx.AsyncClient, function: str, **params: str | int) -> str:
    answer = await api.get(f"{FUNCTIONS}/{function}/logs", params=params)
    return answer.text if answer.status_code == 200 else ""


async def wait_for_line(api: httpx.AsyncClient, function: str, line: str) -> list[str]:
    async def is_there() -> list[str] | NotYet:
        lines = (await read(api, function)).splitlines()
        return lines if line in lines else NotYet(lines)

    return await eventually(is_there)


async def test_the_last_lines_of_a_worker_outlive_its_process_its_pod_and_itself(
    api: httpx.AsyncClient, kube: KubeClient, calls: Calls, function: str
) -> None:
    worker = f"{function}-worker-0"
    async with (
        stock_pool(kube, "fn-logs", 1, specName=SPEC),
        function_object(kube, function, minWorkers=1, maxAttempts=1, template=TALKING),
    ):
        nothing = await api.get(f"{FUNCTIONS}/{function}/logs")
        assert (nothing.status_code, code_of(nothing)) == (409, "operation_conflict")

        # Its process is killed, and started again in the same pod.
        await calls.send(function, f"{function}-killed", lines=["one", "two", "last words"], die=True)
        assert (await calls.ends(f"{function}-killed")).state is InvocationState.DEAD_LETTERED
        await wait_for_line(api, function, f"{worker} | last words")

        # The pod goes without a grace period.
        pod = await pod_of(kube, worker)
        await calls.send(function, f"{function}-deleted", lines=["of the first pod"])
        await calls.ends(f"{function}-deleted")
        await wait_for_line(api, function, f"{worker} | of the first pod")
        await kube.delete(PODS.item(pod["metadata"]["name"], INSTANCES), {"gracePeriodSeconds": 0})
        # The object is gone at once, its processes a moment later: they would still take the next call.
        await is_without_processes(pod)
        await calls.send(function, f"{function}-next", lines=["of the next pod"])
        await calls.ends(f"{function}-next")
        await wait_for_line(api, function, f"{worker} | of the next pod")

        # The worker goes.
        await wait_function_reason(kube, function, "FunctionReady")
        await change_function(kube, function, minWorkers=0, idleTimeoutSeconds=1)

        async def is_gone() -> bool:
            return not await workers_of(kube, function)

        await eventually(is_gone)
        text = await read(api, function, worker=worker)
        said = ["one", "two", "last words", "of the first pod", "of the next pod"]
        assert [line for line in text.splitlines() if line in said] == said
        assert await read(api, function, tail=1, worker=worker) == text.splitlines()[-1] + "\n"
        [stamped] = (await read(api, function, tail=1, timestamps="true", worker=worker)).splitlines()
        assert stamped[:2] == "20"
        assert stamped.endswith(text.splitlines()[-1])


async def test_logs_are_followed_and_refused_with_reasons(
    api: httpx.AsyncClient, kube: KubeClient, calls: Calls, function: str
) -> None:
    unknown = await api.get(f"{FUNCTIONS}/unknown/logs")
    assert (unknown.status_code, code_of(unknown)) == (404, "function_not_found")
    async with (
        stock_pool(kube, "fn-follow", 1, specName=SPEC),
        function_object(kube, function, minWorkers=1, template=TALKING),
    ):
        for params in ({"worker": "*"}, {"worker": "a.b"}, {"tail": "-1"}):
            assert (await api.get(f"{FUNCTIONS}/{function}/logs", params=params)).status_code == 400
        followed: list[str] = []

        async def follow() -> None:
            async with api.stream("GET", f"{FUNCTIONS}/{function}/logs", params={"follow": "true"}) as answer:
                async for line in answer.aiter_lines():
                    followed.append(line)  # noqa: PERF401 - as they come

        following = asyncio.create_task(follow())
        for number in (1, 2):
            await calls.send(function, f"{function}-{number}", lines=[f"line {number}"])
            await calls.ends(f"{function}-{number}")
        said = [f"{function}-worker-0 | line {number}" for number in (1, 2)]

        async def are_heard() -> bool | NotYet:
            return [line for line in followed if line in said] == said or NotYet(followed)

        await eventually(are_heard)
        following.cancel()
        await asyncio.wait({following})
