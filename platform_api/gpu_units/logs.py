"""What a unit's container has written."""

from collections.abc import AsyncGenerator
from typing import Any

from gpu_platform.adapters.kube import KubeError
from gpu_platform.adapters.kube.paths import PODS
from platform_api.bounded_client import BoundedClient
from platform_api.http.errors import conflict, unavailable

Json = dict[str, Any]

SILENCE_SECONDS = 3_600.0
"""A unit that is followed may say nothing for a long time."""


async def read_logs(
    client: BoundedClient, unit: Json, pods: list[Json], options: dict[str, str]
) -> AsyncGenerator[bytes, None]:
    name = unit["metadata"]["name"]
    if not pods:
        phase = (unit.get("status") or {}).get("phase") or "Pending"
        raise conflict(f"the unit {name!r} has no logs: it is {phase} and has no pod; see its events")
    [pod, *_] = pods
    path = PODS.item(pod["metadata"]["name"], pod["metadata"]["namespace"], "log")
    try:
        async for chunk in client.chunks(path, options, silence=SILENCE_SECONDS):
            yield chunk
    except KubeError as error:
        if error.status == 400:
            raise conflict(f"the unit {name!r} has no such logs yet: {error.message}") from None
        if error.status == 404:
            raise conflict(f"the unit {name!r} has no logs just now: its pod is gone") from None
        if error.status >= 500:
            # The message has the node's address, which is none of the tenant's business.
            raise unavailable(f"the node of the unit {name!r} does not hand out its logs just now") from error
        raise
