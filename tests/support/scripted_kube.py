"""An API server of a few lines, for tests of what stands on the Kubernetes client. It takes no time at all."""

# ruff: noqa: ARG002 - the signatures are those of the real client

import asyncio
import copy
import itertools
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from gpu_platform.domain.json_text import Json
from gpu_platform.kube import (
    AlreadyExistsError,
    ConflictError,
    KubeClient,
    KubeError,
    NotFoundError,
    PatchType,
    UnreachableError,
)

Line = Json | KubeError | float


def make_object(name: str, version: str, *, namespace: str = "a", uid: str | None = None, **more: Any) -> Json:
    metadata = {"namespace": namespace, "name": name, "uid": uid or f"uid-{name}", "resourceVersion": version}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **more}


def make_event(kind: str, item: Json) -> Json:
    return {"type": kind, "object": item}


def make_bookmark(version: str) -> Json:
    return make_event("BOOKMARK", {"metadata": {"resourceVersion": version}})


class ScriptedWatchClient(KubeClient):
    """Answers lists and watches with what the test says, in that order, and notes what was asked.

    A list is its items and version, or an error. A watch is its lines: events, errors, and pauses in seconds; one
    that runs out ends normally. When there is no script left, a watch stays open for ever.
    """

    def __init__(self, lists: list[Json | KubeError], watches: list[list[Line]]) -> None:
        self._lists = iter(lists)
        self._watches = iter(watches)
        self.asked: list[tuple[float, str, dict[str, str]]] = []

    def asked_for(self, what: str) -> list[dict[str, str]]:
        return [params for _, asked, params in self.asked if asked == what]

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, timeout: float = 10.0) -> Json:
        self._note("list", params)
        answer = next(self._lists)
        if isinstance(answer, KubeError):
            raise answer
        return copy.deepcopy(answer)

    async def lines(
        self, path: str, params: Mapping[str, str] | None = None, *, silence: float
    ) -> AsyncGenerator[bytes, None]:
        self._note("watch", params)
        for line in next(self._watches, [float("inf")]):
            match line:
                case KubeError():
                    raise line
                case int() | float():
                    await asyncio.sleep(min(line, silence))
                    if line > silence:
                        raise UnreachableError(0, "Timeout", "silence")
                case _:
                    yield json.dumps(line).encode()

    def _note(self, what: str, params: Mapping[str, str] | None) -> None:
        self.asked.append((asyncio.get_running_loop().time(), what, dict(params or {})))


class Store:
    """What an API server holds: objects under their paths."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.versions = itertools.count(1)


class StoredObjects(KubeClient):
    """One process's connection to a store, with versions and conflicts. `fault` may stop a request by raising."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store or Store()
        self.requests: list[tuple[str, str]] = []
        self.fault: Callable[[str, str], None] = lambda _method, _path: None

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, timeout: float = 10.0) -> Json:
        await self._begin("get", path)
        return copy.deepcopy(self._find(path))

    async def create(
        self, path: str, body: Json, params: Mapping[str, str] | None = None, *, timeout: float = 10.0
    ) -> Json:
        await self._begin("create", path)
        item = f"{path}/{body['metadata']['name']}"
        if item in self.store.objects:
            raise AlreadyExistsError(409, "AlreadyExists", item)
        return self._store(item, body)

    async def replace(
        self, path: str, body: Json, params: Mapping[str, str] | None = None, *, timeout: float = 10.0
    ) -> Json:
        await self._begin("replace", path)
        if self._find(path)["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise ConflictError(409, "Conflict", path)
        return self._store(path, body)

    async def patch(
        self,
        path: str,
        body: Json | list[Json],
        patch_type: PatchType = PatchType.MERGE,
        params: Mapping[str, str] | None = None,
        *,
        timeout: float = 10.0,
    ) -> Json:
        """A shallow merge is all that is needed here."""
        await self._begin("patch", path)
        assert isinstance(body, dict)
        return self._store(path, self._find(path) | body)

    async def delete(self, path: str, body: Json | None = None, *, timeout: float = 10.0) -> Json:
        await self._begin("delete", path)
        self._find(path)
        return self.store.objects.pop(path)

    async def _begin(self, method: str, path: str) -> None:
        self.requests.append((method, path))
        await asyncio.sleep(0)
        self.fault(method, path)

    def _find(self, path: str) -> Json:
        if path not in self.store.objects:
            raise NotFoundError(404, "NotFound", path)
        return self.store.objects[path]

    def _store(self, path: str, body: Json) -> Json:
        stored = copy.deepcopy(body)
        stored["metadata"]["resourceVersion"] = str(next(self.store.versions))
        self.store.objects[path] = stored
        return copy.deepcopy(stored)
