"""The operations controller as a whole: killed after any write, or run twice at once, it comes to the same end."""

# ruff: noqa: ARG002 - the signatures are those of the real client

import asyncio
import itertools
import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, cast

import pytest

from gpu_platform.adapters.kube import ConflictError, KubeError, NotFoundError, PatchType
from gpu_platform.adapters.kube.paths import GPU_FUNCTIONS, GPU_SPECS, GPU_UNITS, OPERATIONS, STOCK_POOLS, ResourcePath
from gpu_platform.control.results import Done
from gpu_platform.domain import names
from gpu_platform.domain.operations import TAKEOVER
from gpu_platform.domain.stock import is_claimed
from reconciler.operations.controller import OperationsController
from reconciler.world import World
from tests.builders import NOW, make_function, make_stock, make_unit
from tests.scripted_kube import Store, StoredObjects
from tests.unit.reconciler.test_operations_plan import POOL_REQUEST, SEED_REQUEST, UNIT_REQUEST, claim, make_record

Json = dict[str, Any]

HOME = names.DEFAULT_INSTANCE_NAMESPACE
STOCK = names.STOCK_NAMESPACE


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
        self.units = _Cache(store, GPU_UNITS)
        self.pools = _Cache(store, STOCK_POOLS)
        self.functions = _Cache(store, GPU_FUNCTIONS)


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
    controller = OperationsController(cast("World", CurrentWorld(store)), client, lambda: NOW)
    for _ in range(50):
        try:
            result = await controller.reconcile(namespace, "op-1")
        except (ConflictError, NotFoundError):
            continue
        if result == Done() or getattr(result, "delay", timedelta()) > timedelta():
            return
    raise AssertionError("it does not come to an end")


def a_claim_without_a_unit() -> Store:
    store = new_store()
    put(store, OPERATIONS, make_record("CreateUnit", UNIT_REQUEST).item)
    put(store, GPU_UNITS, claim("pool-0", NOW - TAKEOVER))
    put(store, GPU_UNITS, claim("pool-1", NOW))
    return store


def a_name_that_is_taken() -> Store:
    store = a_claim_without_a_unit()
    put(store, GPU_UNITS, make_unit())
    return store


def a_start_with_a_claim() -> Store:
    store = new_store()
    put(store, OPERATIONS, make_record("StartUnit", uid="uid-demo").item)
    put(store, GPU_UNITS, make_unit(running=False))
    put(store, GPU_UNITS, claim("pool-0", NOW - TAKEOVER))
    put(store, GPU_UNITS, claim("pool-1", NOW))
    return store


def a_deletion() -> Store:
    store = new_store()
    put(store, OPERATIONS, make_record("DeleteUnit", uid="uid-demo").item)
    put(store, GPU_UNITS, make_unit())
    put(store, GPU_UNITS, make_stock())
    return store


def a_deletion_of_a_function() -> Store:
    store = new_store()
    put(store, OPERATIONS, make_record("DeleteFunction", uid="uid-demo").item)
    put(store, GPU_FUNCTIONS, make_function("demo"))
    return store


def a_function_without_the_mark() -> Store:
    store = new_store()
    record = make_record("CreateFunction", {"name": "demo"})
    put(store, OPERATIONS, record.item)
    function = make_function("demo")
    function["metadata"]["annotations"] = {
        names.ANNOTATION_OPERATION_ID: record.spec.operation_id,
        names.ANNOTATION_REQUEST_HASH: record.spec.request_hash,
    }
    put(store, GPU_FUNCTIONS, function)
    return store


def a_function_that_was_never_made() -> Store:
    store = new_store()
    put(store, OPERATIONS, make_record("CreateFunction", {"name": "demo"}).item)
    return store


def a_seed_job() -> Store:
    store = new_store()
    put(store, OPERATIONS, make_record("SeedStockUnits", SEED_REQUEST).item)
    return store


def a_pool_job() -> Store:
    store = new_store()
    put(store, OPERATIONS, make_record("CreateStockPool", {**POOL_REQUEST, "memory": "1Gi", "gpu": 0}).item)
    return store


Summary = tuple[str | None, list[str], list[str], list[str], list[str]]


def summarise(store: Store, namespace: str) -> Summary:
    """How the operation ended, and what there is then: units or functions, stock that is held, pools, specs."""
    operation = store.objects.get(OPERATIONS.item("op-1", namespace))
    phase = operation.get("status", {}).get("phase") if operation else "removed"
    units = [
        each["metadata"]["name"] for path in (GPU_UNITS, GPU_FUNCTIONS) for each in in_namespace(store, path, HOME)
    ]
    held = [each["metadata"]["name"] for each in in_namespace(store, GPU_UNITS, STOCK) if is_claimed(each)]
    pools = [each["metadata"]["name"] for each in in_namespace(store, STOCK_POOLS, STOCK)]
    specs = [each["metadata"]["name"] for each in in_namespace(store, GPU_SPECS, None)]
    return phase, units, held, pools, specs


every_scene = pytest.mark.parametrize(
    ("scene", "namespace", "end"),
    [
        (a_claim_without_a_unit, HOME, ("Succeeded", ["demo"], ["pool-0"], [], [])),
        (a_name_that_is_taken, HOME, ("removed", ["demo"], [], [], [])),
        (a_start_with_a_claim, HOME, ("Succeeded", ["demo"], ["pool-0"], [], [])),
        (a_deletion, HOME, ("Succeeded", [], [], [], [])),
        (a_deletion_of_a_function, HOME, ("Succeeded", [], [], [], [])),
        (a_function_without_the_mark, HOME, ("Succeeded", ["demo"], [], [], [])),
        (a_function_that_was_never_made, HOME, ("removed", [], [], [], [])),
        (a_seed_job, STOCK, ("Running", [], [], ["pool"], ["g1.1"])),
        (a_pool_job, STOCK, ("Succeeded", [], [], ["pool"], ["g1.1"])),
    ],
)


@every_scene
async def test_killed_after_any_write_another_process_comes_to_the_same_end(
    scene: Callable[[], Store], namespace: str, end: Summary
) -> None:
    for number in itertools.count():
        store = scene()
        try:
            await run(store, ApiServer(store, dies_after=number), namespace)
        except KilledError:
            await run(store, ApiServer(store), namespace)
            assert summarise(store, namespace) == end
        else:
            assert number > 0
            break
    assert summarise(store, namespace) == end


@every_scene
async def test_two_processes_at_once_come_to_the_same_end(
    scene: Callable[[], Store], namespace: str, end: Summary
) -> None:
    for seed in range(200):
        store = scene()
        chance = random.Random(seed)
        clients = [ApiServer(store, chance=chance) for _ in range(2)]
        await asyncio.gather(*(run(store, client, namespace) for client in clients))
        assert summarise(store, namespace) == end, f"seed {seed}"


@every_scene
async def test_a_look_at_the_end_writes_nothing(scene: Callable[[], Store], namespace: str, end: Summary) -> None:
    store = scene()
    await run(store, ApiServer(store), namespace)
    again = ApiServer(store)
    await run(store, again, namespace)
    assert again.writes == 0
    assert summarise(store, namespace) == end


async def test_a_unit_that_the_api_server_refuses_for_good_is_given_up() -> None:
    store = a_claim_without_a_unit()
    await run(store, ApiServer(store, refuses="gpuunits"), HOME)
    assert summarise(store, HOME) == ("removed", [], [], [], [])


async def test_a_pool_that_the_api_server_refuses_for_good_fails_the_job() -> None:
    store = a_pool_job()
    await run(store, ApiServer(store, refuses="stockpools"), STOCK)
    assert summarise(store, STOCK) == ("Failed", [], [], [], ["g1.1"])
