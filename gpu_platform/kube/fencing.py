"""Writes that only a leader sends.

The check is made twice: when a write is asked for, and right before it goes onto its connection (`last_look`).
What was sent is not waited for beyond the deadline either, so that nothing is done with a late answer.

What remains: a process that is stopped after the last check and before the kernel took the bytes (44 µs, measured)
sends that one write when it is resumed. No client can close this gap, and the API server knows no epochs. So
whatever must not be overwritten carries a resourceVersion, and whatever must not be deleted twice a uid: such a
write then meets a conflict when the new leader has acted on the object.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gpu_platform.adapters.kube.last_look import last_look
from gpu_platform.adapters.kube.leadership import Leadership, NotLeaderError
from gpu_platform.kube.client import DEFAULT_TIMEOUT, Json, KubeClient, Params, PatchType
from gpu_platform.kube.errors import UnreachableError

OnWrite = Callable[[str, str], None]

NAMESPACE_SUBRESOURCES = frozenset({"finalize", "status"})


class GuardedClient:
    """A KubeClient whose writes raise NotLeaderError, and send nothing, unless this process leads.

    `on_write(verb, resource)` is told of each write that is let through, for example `("patch", "pods/status")`.
    """

    def __init__(
        self, client: KubeClient, leadership: Leadership, on_write: OnWrite = lambda _verb, _resource: None
    ) -> None:
        self._client = client
        self._leadership = leadership
        self._on_write = on_write

    async def get(self, path: str, params: Params | None = None, *, timeout: float = DEFAULT_TIMEOUT) -> Json:
        return await self._client.get(path, params, timeout=timeout)

    async def create(
        self, path: str, body: Json, params: Params | None = None, *, timeout: float = DEFAULT_TIMEOUT
    ) -> Json:
        async with self._leading("create", path):
            return await self._client.create(path, body, params, timeout=timeout)

    async def replace(
        self, path: str, body: Json, params: Params | None = None, *, timeout: float = DEFAULT_TIMEOUT
    ) -> Json:
        async with self._leading("update", path):
            return await self._client.replace(path, body, params, timeout=timeout)

    async def patch(
        self,
        path: str,
        body: Json | list[Json],
        patch_type: PatchType = PatchType.MERGE,
        params: Params | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> Json:
        async with self._leading("patch", path):
            return await self._client.patch(path, body, patch_type, params, timeout=timeout)

    async def delete(self, path: str, body: Json | None = None, *, timeout: float = DEFAULT_TIMEOUT) -> Json:
        async with self._leading("delete", path):
            return await self._client.delete(path, body, timeout=timeout)

    @asynccontextmanager
    async def _leading(self, verb: str, path: str) -> AsyncIterator[None]:
        self._leadership.check()
        self._on_write(verb, resource_of(path))
        left = self._leadership.seconds_left
        try:
            with last_look(self._leadership.check):
                async with asyncio.timeout(left if math.isfinite(left) else None):
                    yield
        except TimeoutError as error:
            if self._leadership.is_leader:
                # It was renewed meanwhile: the API server is slow, and that is all.
                raise UnreachableError(0, "Timeout", f"{verb} {path} was not answered within {left:.0f} s") from error
            raise NotLeaderError(f"the lease ran out before {verb} {path} was answered") from error


def resource_of(path: str) -> str:
    """The kind behind a path, with its subresource: `/apis/apps/v1/namespaces/a/deployments/b/scale` is
    `deployments/scale`."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in NAMESPACE_SUBRESOURCES:
        rest = rest[2:]
    return "/".join([rest[0], *rest[2:]])
