"""Whether Kubernetes can be used, and a client for requests that fails at once while it cannot (a circuit breaker).

`Pulse` asks twice a second, so that no request has to find out by waiting. A single slow or failing `/readyz` refuses
nothing: it is judged together with a call like those of requests, and with the requests' own calls.

`BoundedClient` is Kubernetes for a request: an answer within seconds, or none at all. While the pulse is lost a call
fails at once, so that callers do not pile up behind a server that is away. A call that is answered tells the pulse so.
What was written is counted, by namespace.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager

from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, KubeError, PatchType, UnreachableError
from gpu_platform.kube.paths import GPU_SPECS

log = logging.getLogger(__name__)

INTERVAL = 0.5
"""Seconds between the beginnings of two questions."""

PATIENCE = 1.0
"""Seconds for one answer. An outage is noticed after an interval and two of these, which is within the 3 s in which
every caller is answered."""

Params = Mapping[str, str]

NoteWritten = Callable[[str, int], None]
"""Takes a namespace, and how many bytes of an object in it were stored."""

CALL_SECONDS = 2.0
"""For one call. A caller is answered within 3 s also when this one is in vain."""


def judge(readiness: str | None, *, call_answered: bool, requests_answered: bool) -> str | None:
    """Why Kubernetes cannot be used; None when it can.

    | `/readyz` | a call of the pulse itself | calls of requests since `/readyz` was asked | Kubernetes      |
    | --------- | -------------------------- | ------------------------------------------- | --------------- |
    | answers   | is not made                | any                                         | can be used     |
    | fails     | is answered                | any                                         | can be used     |
    | fails     | fails                      | some were answered                          | can be used     |
    | fails     | fails                      | none was answered                           | cannot, and why |

    The pulse makes a call of its own because requests are refused once Kubernetes is lost: none of theirs could show
    that it can be used again.
    """
    return None if call_answered or requests_answered else readiness


class Pulse:
    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._asked = False
        self._lost_at: float | None = None
        self._request_answered_at: float | None = None
        self.problem: str | None = None
        """Why Kubernetes cannot be used; None while it can, or before it was asked."""

    @property
    def is_felt(self) -> bool:
        """Whether Kubernetes could be used when it was last asked."""
        return self._asked and self.problem is None

    @property
    def lost_seconds(self) -> float:
        """Since the first sign of the outage; 0 while there is none."""
        return asyncio.get_running_loop().time() - self._lost_at if self._lost_at is not None else 0.0

    def note_answer(self) -> None:
        """A request's own call was answered."""
        self._request_answered_at = asyncio.get_running_loop().time()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began_at = loop.time()
            await self.feel()
            await asyncio.sleep(max(0.1, INTERVAL - (loop.time() - began_at)))

    async def feel(self) -> None:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        failure = await self._ask_readiness()
        call_answered = False
        if failure is not None:
            # What fails at once is asked again after a pause: a connection may have been closed in between.
            await asyncio.sleep(max(0.0, INTERVAL - (loop.time() - began_at)))
            call_answered = await self._is_call_answered()
        requests_answered = self._request_answered_at is not None and self._request_answered_at >= began_at
        readiness = _in_short(failure) if failure else None
        before = self.problem
        self.problem = judge(readiness, call_answered=call_answered, requests_answered=requests_answered)
        if self.problem is None:
            self._lost_at = None
        elif self._lost_at is None:
            self._lost_at = began_at
        self._asked = True
        if (before is None) != (self.problem is None):
            log.warning("kubernetes.lost" if self.problem else "kubernetes.found", extra={"error": str(failure or "")})

    async def _ask_readiness(self) -> KubeError | None:
        try:
            await self._client.text("/readyz", timeout=PATIENCE)
        except KubeError as error:
            return error
        return None

    async def _is_call_answered(self) -> bool:
        """A call that goes through to the store, as those of requests do."""
        try:
            await self._client.get(GPU_SPECS.collection(), {"limit": "1"}, timeout=PATIENCE)
        except KubeError as error:
            return is_answer(error)
        return True


def is_answer(error: KubeError) -> bool:
    """Whether the API server works although it answered with this error."""
    return 0 < error.status < 500


def _in_short(error: KubeError) -> str:
    """Shown to everybody: no hosts, no paths."""
    if error.status:
        return f"it answers {error.status} to the question whether it is ready"
    return "no answer in time" if error.reason == "Timeout" else "no connection"


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
