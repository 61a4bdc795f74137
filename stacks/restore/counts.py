"""Waiting until Kubernetes counts tenants' objects: before that, it refuses to create any.

On a cluster that was bootstrapped a moment ago, its quota controller does not know the platform's kinds yet.
"""

import asyncio
import time
from collections.abc import Callable

from gpu_platform.domain.limits import QUOTA, is_counted
from gpu_platform.kube.errors import KubeError
from gpu_platform.kube.paths import RESOURCE_QUOTAS
from gpu_platform.kube.requests import Getter
from stacks.restore.report import Telling

LOOK_SECONDS = 1.0

SILENT_SECONDS = 30.0
"""Without an answer to the question: long enough for an API server that is restarted."""

COUNTED_SECONDS = 7 * 60.0
"""The quota controller looks for new kinds every 30 s and counts them with its next full pass, every five minutes."""


async def wait_for_counts(client: Getter, telling: Telling, clock: Callable[[], float] = time.monotonic) -> None:
    """Waits until the objects of every tenant are counted; gives up, and says so, when that takes too long."""
    counted_by = clock() + COUNTED_SECONDS
    heard_by = clock() + SILENT_SECONDS
    is_told = False
    while True:
        try:
            uncounted = await _list_uncounted(client)
        except KubeError as error:
            problem = f"the ResourceQuotas {QUOTA} cannot be listed ({error})"
            is_over = error.is_refusal or clock() >= heard_by
        else:
            if not uncounted:
                return
            heard_by = clock() + SILENT_SECONDS
            problem = f"Kubernetes does not count the objects in {', '.join(uncounted)} yet"
            is_over = clock() >= counted_by
        if is_over:
            telling.say(f"{problem}: goes on, and what is refused now is left to another restore")
            return
        if not is_told:
            telling.say("waits until Kubernetes counts the objects of tenants; on a new cluster this takes minutes")
            is_told = True
        await asyncio.sleep(LOOK_SECONDS)


async def _list_uncounted(client: Getter) -> list[str]:
    """The namespaces of tenants whose objects are not counted yet."""
    params = {"fieldSelector": f"metadata.name={QUOTA}"}
    quotas = (await client.get(RESOURCE_QUOTAS.collection(), params))["items"]
    return sorted(quota["metadata"]["namespace"] for quota in quotas if not is_counted(quota))
