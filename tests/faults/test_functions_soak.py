"""Bursts and silence on four functions: workers start and stop within their limits, and nothing is left."""

import asyncio
import os
import random
import secrets
import time
from collections import Counter
from contextlib import AsyncExitStack

from gpu_platform.domain.invocations import InvocationState
from gpu_platform.domain.names import SYSTEM_NAMESPACE
from gpu_platform.domain.stacks import LABEL_KIND
from gpu_platform.domain.stock import claim_holder_of
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import LEASES
from gpu_platform.nats.streams import list_consumers
from tests.support.clusters import RunningCluster
from tests.support.fault_report import FaultReport
from tests.support.functions import SPEC, Calls, function_object, open_calls, workers_of
from tests.support.units_and_stock import stock_of, stock_pool, wait_pool_available
from tests.support.waiting import NotYet, eventually

SOAK_SECONDS = float(os.environ.get("SOAK_SECONDS", "300"))
FUNCTIONS = 4
MOST = 2
"""Workers of each: the host node has GPUs for all of them."""

IDLE = 5


async def test_bursts_and_silence_leave_nothing_behind(
    kube: KubeClient, cluster: RunningCluster, faults: FaultReport
) -> None:
    chance = random.Random(5)
    names = [f"soak-{secrets.token_hex(3)}-{number}" for number in range(FUNCTIONS)]
    stacks = await count_stacks(kube)
    async with (
        open_calls(cluster) as calls,
        stock_pool(kube, "soak-functions", FUNCTIONS * MOST, specName=SPEC),
        AsyncExitStack() as stack,
    ):
        for name in names:
            await stack.enter_async_context(function_object(kube, name, maxWorkers=MOST, idleTimeoutSeconds=IDLE))
        ends_at = time.monotonic() + SOAK_SECONDS
        states: Counter[InvocationState] = Counter()
        while time.monotonic() < ends_at:
            for found in await asyncio.gather(*(burst(kube, calls, name, chance) for name in names)):
                states += found
                faults.hit("burst of invocations")
            await asyncio.sleep(chance.uniform(0, 2 * IDLE))

        async def are_all_gone() -> bool:
            return not any([await workers_of(kube, name) for name in names])

        await eventually(are_all_gone)
        await wait_pool_available(kube, "soak-functions", FUNCTIONS * MOST)
        await eventually(lambda: has_no_claim(kube))
        assert {name for tenant, name in await list_consumers(calls.js) if tenant == "default"} >= set(names)
        assert set(states) == {InvocationState.SUCCEEDED}
        assert states.total() > SOAK_SECONDS / 10
    assert await count_stacks(kube) == stacks
    faults.held("workers within their limits", "every invocation succeeds", "no claim left", "no stack left")


async def has_no_claim(kube: KubeClient) -> bool | NotYet:
    """The pool is full before the last unit that a worker held has gone: its replacement is made at once."""
    claimed = [stock for stock in await stock_of(kube, "soak-functions") if claim_holder_of(stock)]
    return NotYet([(stock["metadata"], stock.get("status")) for stock in claimed]) if claimed else True


async def burst(kube: KubeClient, calls: Calls, function: str, chance: random.Random) -> Counter[InvocationState]:
    ids = [f"{function}-{secrets.token_hex(4)}" for _ in range(chance.randrange(1, 20))]
    await asyncio.gather(*(calls.send(function, each, delay=chance.uniform(0, 0.5)) for each in ids))
    ended = [asyncio.create_task(calls.ends(each)) for each in ids]
    while not all(each.done() for each in ended):
        living = [unit for unit in await workers_of(kube, function) if "deletionTimestamp" not in unit["metadata"]]
        assert len(living) <= MOST
        await asyncio.sleep(0.5)
    return Counter([(await each).state for each in ended])


async def count_stacks(kube: KubeClient) -> int:
    leases = await kube.get(LEASES.collection(SYSTEM_NAMESPACE), {"labelSelector": LABEL_KIND})
    return len(leases["items"])
