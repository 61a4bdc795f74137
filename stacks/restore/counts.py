"""Waiting until Kubernetes counts tenants' objects: before that, it refuses to create any.

On a cluster that was bootstrapped a moment ago, its quota controller does not know the platform's kinds yet.
"""

import asyncio
import time
from collections.abc import Callable

from gpu_platform.adapters.kube.paths import RESOURCE_QUOTAS
from gpu_platform.adapters.kube.requests import Getter
from gpu_platform.domain.object_counts import QUOTA, is_counted
from stacks.restore.report import Telling

LOOK_SECONDS = 1.0

COUNTED_SECONDS = 7 * 60.0
"""The quota controller looks for new kinds every 30 s and counts them with its next full pass, every five minutes."""


async def wait_for_counts(client: Getter, telling: Telling, clock: Callable[[], float] = time.monotonic) -> bool:
    """Returns whether the objects of every tenant are counted; False when that takes too long."""
    end = clock() + COUNTED_SECONDS
    is_told = False
    while True:
        quotas = (await client.get(RESOURCE_QUOTAS.collection(), {"fieldSelector": f"metadata.name={QUOTA}"}))["items"]
        if all(map(is_counted, quotas)):
            return True
        if clock() > end:
            return False
        if not is_told:
            telling.say("waits until Kubernetes counts the objects of tenants; on a new cluster this takes minutes")
            is_told = True
        await asyncio.sleep(LOOK_SECONDS)
