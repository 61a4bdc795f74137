"""Waiting for the stock whose place the units take: until there is enough, or until no more comes."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from gpu_platform.domain.names import STOCK_NAMESPACE
from gpu_platform.domain.stock import rank_stock
from gpu_platform.kube.paths import STOCK_POOLS
from gpu_platform.kube.requests import Getter
from gpu_platform.store.claims import list_free_stock
from stacks.restore.checkpoints import Kept
from stacks.restore.report import Telling

Json = dict[str, Any]

LOOK_SECONDS = 0.5

STALL_SECONDS = 20.0
"""Without one more free unit of stock: no more will come soon. On an idle machine a pool makes several in a second."""


async def wait_for_stock(
    client: Getter, units: Iterable[Kept], telling: Telling, clock: Callable[[], float] = time.monotonic
) -> int:
    """How many units will have to do without. A pool gives no more than it holds: what it makes when some of it was
    taken comes while the units are made."""
    needed = Counter(kept.spec_name for kept in units if kept.runs and kept.spec_name is not None)
    wanted = count_wanted(needed, (await client.get(STOCK_POOLS.collection(STOCK_NAMESPACE)))["items"])
    total, best, grown_at = sum(wanted.values()), 0, clock()
    telling.begin("stock", total)
    while True:
        there = sum([min(count, len(await _list_ready(client, spec))) for spec, count in wanted.items()])
        if there > best:
            best, grown_at = there, clock()
            telling.advance(there)
        if there >= total or clock() - grown_at > STALL_SECONDS:
            return sum(needed.values()) - there
        await asyncio.sleep(LOOK_SECONDS)


def count_wanted(needed: Counter[str], pools: Iterable[Json]) -> Counter[str]:
    """By GPUSpec: as much as is needed, and no more than the pools hold."""
    held: Counter[str] = Counter()
    for pool in pools:
        held[pool["spec"]["specName"]] += pool["spec"]["replicas"]
    return Counter({spec: min(count, held[spec]) for spec, count in needed.items() if held[spec]})


async def _list_ready(client: Getter, spec_name: str) -> tuple[Json, ...]:
    return rank_stock(await list_free_stock(client, spec_name), spec_name)
