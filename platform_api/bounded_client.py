"""Kubernetes for a request: an answer within seconds, or none at all.

While the pulse is lost a call fails at once, so that callers do not pile up behind a server that is away. A call that
is answered tells the pulse so. What was written is counted, by namespace.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gpu_platform.kube import KubeClient, KubeError, PatchType, UnreachableError
from platform_api.kube_health import Pulse, is_answer

Json = dict[str, Any]
Params = Mapping[str, str]
NoteWritten = Callable[[str, int], None]
"""Takes a namespace, and how many bytes of an object in it were stored."""

CALL_SECONDS = 2.0
"""For one call. A caller is answered within 3 s also when this one is in vain."""


class BoundedClient:
    def __init__(self, client: KubeClient, pulse: Pulse, note_written: NoteWritten | None = None) -> None:
        self._client = client
        self._pulse = pulse
        self._note_written = note_written

    async def get(self, path: str, params: Params | None = None) -> Json:
        with self._noted():
            return await self._client.get(path, params, timeout=CALL_SECONDS)

    async def create(self, path: str, body: Json, params: Params | None = None) -> Json:
        with self._noted():
            return await self._counted(body, self._client.create(path, body, params, timeout=CALL_SECONDS))

    async def replace(self, path: str, body: Json, params: Params | None = None) -> Json:
        with self._noted():
            return await self._counted(body, self._client.replace(path, body, params, timeout=CALL_SECONDS))

    async def patch(self, path: str, body: Json, patch_type: PatchType = PatchType.MERGE) -> Json:
        with self._noted():
            return await self._counted(body, self._client.patch(path, body, patch_type, timeout=CALL_SECONDS))

    async def delete(self, path: str, body: Json | None = None) -> Json:
        with self._noted():
            return await self._client.delete(path, body, timeout=CALL_SECONDS)

    async def lines(self, path: str, params: Params | None = None, *, silence: float) -> AsyncGenerator[bytes, None]:
        self._check()
        async for line in self._client.lines(path, params, silence=silence):
            yield line

    async def chunks(self, path: str, params: Params | None = None, *, silence: float) -> AsyncGenerator[bytes, None]:
        self._check()
        async for chunk in self._client.chunks(path, params, silence=silence):
            yield chunk

    async def _counted(self, body: Json, write: Awaitable[Json]) -> Json:
        """The answer shows all that is stored, also of a patch. Without an answer, the body may have been."""
        try:
            stored = await write
        except UnreachableError:
            self._count(body)
            raise
        self._count(stored)
        return stored

    def _count(self, item: Json) -> None:
        namespace = item.get("metadata", {}).get("namespace")
        if self._note_written is not None and namespace is not None:
            self._note_written(namespace, len(json.dumps(item, ensure_ascii=False).encode()))

    @contextmanager
    def _noted(self) -> Iterator[None]:
        self._check()
        try:
            yield
        except KubeError as error:
            if is_answer(error):
                self._pulse.note_answer()
            raise
        self._pulse.note_answer()

    def _check(self) -> None:
        if self._pulse.problem is not None:
            raise UnreachableError(0, "Unreachable", self._pulse.problem)
