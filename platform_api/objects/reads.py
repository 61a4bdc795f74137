"""What the containers of a tenant's objects have written."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Query

from gpu_platform.kube import KubeError
from gpu_platform.kube.paths import PODS
from platform_api.bounded_client import BoundedClient
from platform_api.http.errors import conflict, not_found, unavailable

Json = dict[str, Any]

TAIL_LIMIT = 100_000
SILENCE_SECONDS = 3_600.0
"""Whoever is followed may say nothing for a long time."""


@dataclass(frozen=True)
class LogOptions:
    """How much of it a caller wants."""

    follow: Annotated[bool, Query(description="Go on as it grows.")] = False
    tail: Annotated[int | None, Query(ge=0, le=TAIL_LIMIT, description="Only the last lines.")] = None
    previous: Annotated[bool, Query(description="Of the container before the last restart.")] = False
    timestamps: Annotated[bool, Query(description="With the time of each line.")] = False

    def to_params(self) -> dict[str, str]:
        flags = {"follow": self.follow, "previous": self.previous, "timestamps": self.timestamps}
        tail = {"tailLines": str(self.tail)} if self.tail is not None else {}
        return {flag: "true" for flag, is_set in flags.items() if is_set} | tail


async def read_pods(client: BoundedClient, namespace: str, selector: str) -> list[Json]:
    """Newest first."""
    pods = (await client.get(PODS.collection(namespace), {"labelSelector": selector}))["items"]
    return sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)


async def read_logs(
    client: BoundedClient, whose: str, pod: Json, options: LogOptions, container: str | None = None
) -> AsyncGenerator[bytes, None]:
    """Of the pod's only container, or of this one. `whose` is said in refusals: `the unit 'web'`."""
    spec = pod["spec"]
    there = [each["name"] for each in (*spec["containers"], *spec.get("initContainers", ()))]
    if container is not None and container not in there:
        raise not_found("container_not_found", f"{whose} has no container {container!r}: it has no SSH")
    path = PODS.item(pod["metadata"]["name"], pod["metadata"]["namespace"], "log")
    params = options.to_params() | ({"container": container} if container is not None else {})
    try:
        async for chunk in client.chunks(path, params, silence=SILENCE_SECONDS):
            yield chunk
    except KubeError as error:
        if error.status == 400:
            raise conflict(f"{whose} has no such logs yet: {error.message}") from None
        if error.status == 404:
            raise conflict(f"{whose} has no logs just now: its pod is gone") from None
        if error.status >= 500:
            # The message has the node's address, which is none of the tenant's business.
            raise unavailable(f"the node of {whose} does not hand out its logs just now") from error
        raise
