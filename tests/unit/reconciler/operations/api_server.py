"""An API server of operations for tests of their controller: it can die after any write, and refuse for good."""

# ruff: noqa: ARG002 - the signatures are those of the real client

import asyncio
import itertools
import random
from collections.abc import Mapping
from datetime import timedelta
from typing import cast

from gpu_platform.controller.loop import Done
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import TAKEOVER
from gpu_platform.kube import ConflictError, KubeError, NotFoundError, PatchType
from gpu_platform.kube.paths import GPU_FUNCTIONS, GPU_STORAGES, GPU_UNITS, OPERATIONS, STOCK_POOLS, ResourcePath
from reconciler.informers import World
from reconciler.operations.controller import OperationsController
from tests.support.builders import NOW
from tests.support.scripted_kube import Store, StoredObjects


class KilledError(BaseException):
    """What a SIGKILL is to a test."""


class ApiServer(StoredObjects):
    """With uids, merge patches, preconditions and lists, and a death after the write of this number."""

    def __init__(self, store: Store, *, dies_after: int = -1, refuses: str = "", chance: random.Random | None = None):
        super().__init__(store)
        self._dies_after = dies_after
        self._refuses = refuses
        self._chance = chance
        self.writes = 0

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, timeout: float = 10.0) -> Json:
        if params is None:
            return await super().get(path, timeout=timeout)
        await self._begin("get", path)
        _, _, state = params["labelSelector"].partition("=")
        items = [each for place, each in self.store.objects.items() if place.startswith(f"{path}/")]
        return {"items": [each for each in items if each["metadata"]["labels"][names.LABEL_STOCK_STATE] == state]}

    async def create(
        self, path: str, body: Json, params: Mapping[str, str] | None = None, *, timeout: float = 10.0
    ) -> Json:
        if self._refuses and path.endswith(self._refuses):
            raise KubeError(422, "Invalid", "never")
        given = {"uid": f"uid-{next(self.store.versions)}", "creationTimestamp": NOW.isoformat()}
        return await super().create(path, {**body, "metadata": {**body["metadata"], **given}}, params, timeout=timeout)

    async def patch(
        self,
        path: str,
        body: Json | list[Json],
        patch_type: PatchType = PatchType.MERGE,
        params: Mapping[str, str] | None = None,
        *,
        timeout: float = 10.0,
    ) -> Json:
        assert isinstance(body, dict)
        await self._begin("patch", path)
        place = path.removesuffix("/status")
        self._check(place, body["metadata"])
        return self._store(place, _merge(self._find(place), body))

    async def delete(self, path: str, body: Json | None = None, *, timeout: float = 10.0) -> Json:
        await self._begin("delete", path)
        self._check(path, (body or {}).get("preconditions", {}))
        gone = self.store.objects.pop(path)
        self._note_write()
        return gone

    async def _begin(self, method: str, path: str) -> None:
        await super()._begin(method, path)
        for _ in range(self._chance.randrange(4) if self._chance else 0):
            await asyncio.sleep(0)

    def _check(self, path: str, expected: Json) -> None:
        seen = self._find(path)["metadata"]
        if any(seen[key] != expected[key] for key in ("uid", "resourceVersion") if key in expected):
            raise ConflictError(409, "Conflict", path)

    def _store(self, path: str, body: Json) -> Json:
        stored = super()._store(path, body)
        self._note_write()
        return stored

    def _note_write(self) -> None:
        if self.writes == self._dies_after:
            raise KilledError
        self.writes += 1


def _merge(target: Json, change: Json) -> Json:
    merged = dict(target)
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key) or {}, value) if isinstance(value, dict) else value
    return merged


class CurrentWorld:
    """Caches that are never behind."""

    def __init__(self, store: Store) -> None:
        self.operations = _Cache(store, OPERATIONS)
        paths = {
            "GPUUnit": GPU_UNITS,
            "StockPool": STOCK_POOLS,
            "GPUStorage": GPU_STORAGES,
            "GPUFunction": GPU_FUNCTIONS,
        }
        self.accepted = {kind: _Cache(store, path) for kind, path in paths.items()}


class _Cache:
    def __init__(self, store: Store, path: ResourcePath) -> None:
        self._store = store
        self._path = path

    def get(self, namespace: str, name: str) -> Json | None:
        return self._store.objects.get(self._path.item(name, namespace))


def new_store() -> Store:
    """Its versions are above those of the objects that a scene puts there."""
    store = Store()
    store.versions = itertools.count(100)
    return store


def put(store: Store, path: ResourcePath, item: Json) -> None:
    store.objects[path.item(item["metadata"]["name"], item["metadata"].get("namespace"))] = item


def in_namespace(store: Store, path: ResourcePath, namespace: str | None) -> list[Json]:
    return [each for place, each in store.objects.items() if place.startswith(f"{path.collection(namespace)}/")]


async def run(store: Store, client: ApiServer, namespace: str) -> None:
    """Pass after pass, as the loop makes them, until nothing follows."""
    controller = OperationsController(cast("World", CurrentWorld(store)), client, lambda: NOW, takeover=TAKEOVER)
    for _ in range(50):
        try:
            result = await controller.reconcile(namespace, "op-1")
        except (ConflictError, NotFoundError):
            continue
        if result == Done() or getattr(result, "delay", timedelta()) > timedelta():
            return
    raise AssertionError("it does not come to an end")
