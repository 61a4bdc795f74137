"""The functions controller where Kubernetes refuses, is slow, or has lost what the queue still knows."""

from contextlib import suppress
from datetime import datetime, timedelta
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from gpu_platform.controller.loop import Done, Key, RequeueAfter, Result
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stock import is_claimed
from gpu_platform.kube import AlreadyExistsError, KubeError, QuotaBusyError, UnreachableError
from gpu_platform.kube.informer import ObjectCache, WatchTiming
from gpu_platform.kube.paths import GPU_FUNCTIONS, GPU_UNITS
from gpu_platform.nats.streams import Backlog
from reconciler.functions.controller import EVERYTHING, REFUSED, FunctionsController
from reconciler.functions.credentials import Signer
from reconciler.functions.observe import observe_function
from reconciler.functions.queue_link import QueueLink, StillConnectingError
from reconciler.functions.scaling import Scaler
from reconciler.functions.workers import WorkerStarts, build_worker
from reconciler.informers import World
from tests.support.builders import NOW, make_function, make_stock, make_unit
from tests.unit.reconciler.operations.api_server import ApiServer, new_store, put

HOME = names.DEFAULT_INSTANCE_NAMESPACE
WORKER = GPU_UNITS.item("words-worker-0", HOME)
WORKERS = GPU_UNITS.collection(HOME)
STOCK = GPU_UNITS.item("pool-0", names.STOCK_NAMESPACE)


class Queue:
    def __init__(self) -> None:
        self.consumers: set[tuple[str, str]] = set()
        self.is_connecting = False
        self.storage_problem: str | None = None

    async def ensure_consumer(self, tenant: str, function: str, ack_wait: timedelta) -> None:  # noqa: ARG002
        if self.is_connecting:
            raise StillConnectingError("not yet")
        self.consumers.add((tenant, function))

    async def remove_consumer(self, tenant: str, function: str) -> None:
        self.consumers.discard((tenant, function))

    async def list_consumers(self) -> frozenset[tuple[str, str]]:
        return frozenset(self.consumers)

    async def read_backlog(self, tenant: str, function: str) -> Backlog | None:  # noqa: ARG002
        return None


class Scene:
    """One function that wants one worker, and one free stock unit."""

    def __init__(self) -> None:
        self.store = new_store()
        self.client = ApiServer(self.store)
        self.world = World(self.client, WatchTiming(resync=timedelta(hours=1)))
        self.queue = Queue()
        self.time = NOW
        self.events: list[tuple[str, str]] = []
        self.passes: list[Key] = []
        self.controller = FunctionsController(
            self.world,
            self.client,
            self,
            cast(QueueLink, self.queue),
            Signer(None, None),
            Scaler(self.now),
            WorkerStarts(CollectorRegistry(), self.now),
            self.now,
            look_again=self.passes.append,
        )
        self.show(self.world.specs, {"metadata": {"name": "g1.1"}, "spec": {"gpu": 1, "memory": "16Gi"}})
        self.show(self.world.namespaces, {"metadata": {"name": HOME}})

    def now(self) -> datetime:
        return self.time

    async def record(self, regarding: Json, type_: str, reason: str, message: str) -> None:
        assert (type_, reason) == ("Warning", "FunctionRefused")
        self.events.append((regarding["metadata"]["name"], message))

    def show(self, cache: ObjectCache, item: Json) -> None:
        metadata = {"uid": f"uid-{item['metadata']['name']}", "resourceVersion": "7", **item["metadata"]}
        cache._put({**item, "metadata": metadata}, listed=False)

    def declare(self) -> None:
        function, stock = make_function(minWorkers=1), make_stock()
        put(self.store, GPU_FUNCTIONS, function)
        put(self.store, GPU_UNITS, stock)
        self.show(self.world.functions, function)
        self.show(self.world.units, stock)

    def catch_up(self) -> None:
        for cache, path in ((self.world.functions, GPU_FUNCTIONS), (self.world.units, GPU_UNITS)):
            for place, item in self.store.objects.items():
                if f"/{path.plural}/" in place:
                    self.show(cache, item)

    async def look(self, name: str = "words", namespace: str = HOME) -> Result:
        return await self.controller.reconcile(namespace, name)

    @property
    def function(self) -> Json:
        return self.store.objects[GPU_FUNCTIONS.item("words", HOME)]

    def is_claimed(self) -> bool:
        return is_claimed(self.store.objects[STOCK])

    def tries(self) -> int:
        return self.client.requests.count(("create", WORKERS))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def refuse_units(method: str, path: str) -> None:
    if (method, path) == ("create", WORKERS):
        raise KubeError(403, "Forbidden", "exceeded quota: gpus")


async def test_a_refused_worker_is_told_of_and_tried_once_a_minute(scene: Scene) -> None:
    scene.declare()
    scene.client.fault = refuse_units

    assert isinstance(await scene.look(), RequeueAfter)
    assert not scene.is_claimed()
    status = scene.function["status"]
    assert (status["phase"], status["conditions"][0]["reason"]) == ("Failed", "WorkerFailed")
    assert "exceeded quota: gpus" in status["conditions"][0]["message"]

    scene.catch_up()
    scene.time += REFUSED / 2
    await scene.look()
    assert scene.tries() == 1

    scene.client.fault = lambda _method, _path: None
    scene.time += REFUSED / 2
    assert await scene.look() == Done()
    assert WORKER in scene.store.objects


async def test_a_worker_that_an_earlier_try_made_keeps_its_stock(scene: Scene) -> None:
    scene.declare()
    seen = observe_function(scene.world, HOME, "words")
    assert seen is not None
    assert seen.spec is not None
    put(scene.store, GPU_UNITS, build_worker(seen.function, seen.spec, 0, make_stock(), woken_at=NOW, claimed_at=NOW))

    with pytest.raises(AlreadyExistsError):
        await scene.look()

    assert scene.is_claimed()


@pytest.mark.parametrize(
    "hidden",
    [KubeError(403, "Forbidden", "exceeded quota: gpus"), QuotaBusyError(409, "Conflict", "try again")],
    ids=["full quota", "busy quota"],
)
async def test_a_quota_that_hides_such_a_worker_frees_none_of_its_stock(scene: Scene, hidden: KubeError) -> None:
    """The API server looks at quotas before names."""

    def hide(method: str, path: str) -> None:
        if (method, path) == ("create", WORKERS):
            raise hidden

    scene.declare()
    seen = observe_function(scene.world, HOME, "words")
    assert seen is not None
    assert seen.spec is not None
    put(scene.store, GPU_UNITS, build_worker(seen.function, seen.spec, 0, make_stock(), woken_at=NOW, claimed_at=NOW))
    scene.client.fault = hide

    with suppress(QuotaBusyError):
        await scene.look()

    assert scene.tries() == 1
    assert scene.is_claimed()


async def test_a_unit_is_told_that_its_function_is_refused(scene: Scene) -> None:
    def refuse(method: str, path: str) -> None:
        if (method, path) == ("create", GPU_FUNCTIONS.collection(HOME)):
            full = "count/gpufunctions.runtime.lokiwager.io=2"
            raise KubeError(403, "Forbidden", f"exceeded quota: q, requested: {full}, used: {full}, limited: {full}")

    scene.show(scene.world.units, make_unit("own", serverless={"requestID": "words"}))
    scene.client.fault = refuse

    assert await scene.look() == RequeueAfter(REFUSED, scene.events[0][1])
    [(unit, message)] = scene.events
    assert (unit, "its limit functions is 2" in message) == ("own", True)


async def test_stock_for_a_name_that_somebody_else_took_is_given_back(scene: Scene) -> None:
    scene.declare()
    put(scene.store, GPU_UNITS, make_unit("words-worker-0"))

    with pytest.raises(AlreadyExistsError):
        await scene.look()

    assert not scene.is_claimed()


async def test_after_a_try_that_may_have_arrived_the_watch_is_waited_for(scene: Scene) -> None:
    def lose(method: str, path: str) -> None:
        if (method, path) == ("create", WORKERS):
            raise UnreachableError(0, "Timeout", "no answer")

    scene.declare()
    scene.client.fault = lose
    with pytest.raises(UnreachableError):
        await scene.look()

    assert isinstance(await scene.look(), RequeueAfter)
    assert scene.tries() == 1
    assert scene.is_claimed()


async def test_a_function_is_not_ready_while_nats_stores_nothing(scene: Scene) -> None:
    scene.declare()
    assert await scene.look() == Done()
    scene.catch_up()
    scene.queue.storage_problem = "NATS stores nothing in KV_invocations: storage full (no space left on device)"
    scene.controller.look_at_all()
    assert scene.passes == [(HOME, "words")]

    assert isinstance(await scene.look(), RequeueAfter)
    [condition] = scene.function["status"]["conditions"]
    assert (scene.function["status"]["phase"], condition["reason"]) == ("Progressing", "QueueUnavailable")
    assert condition["message"] == scene.queue.storage_problem

    scene.catch_up()
    scene.queue.storage_problem = None
    assert await scene.look() == Done()
    assert scene.function["status"]["conditions"][0]["reason"] != "QueueUnavailable"


async def test_while_the_connection_is_made_nothing_is_said_of_a_function(scene: Scene) -> None:
    scene.declare()
    scene.queue.is_connecting = True

    assert isinstance(await scene.look(), RequeueAfter)
    assert "status" not in scene.function or not scene.function["status"]


async def test_consumers_of_a_tenant_that_is_gone_are_removed_without_asking_for_its_functions(scene: Scene) -> None:
    scene.queue.consumers = {("gone", "old"), ("default", "late")}

    await scene.look(EVERYTHING[1], EVERYTHING[0])
    assert sorted(name for _, name in scene.passes) == ["late", "old"]
    for namespace, name in scene.passes:
        assert await scene.look(name, namespace) == Done()

    assert scene.queue.consumers == set()
    assert [path for _, path in scene.client.requests] == [GPU_FUNCTIONS.item("late", HOME)]


def ledger_entry(kind: str, uid: str, at: str) -> Json:
    target = {"kind": "GPUFunction", "namespace": HOME, "name": "words", "uid": uid}
    metadata = {"name": f"{kind.lower()}-{uid}", "namespace": HOME, "creationTimestamp": at}
    return {
        "metadata": metadata,
        "spec": {"kind": kind, "target": target},
        "status": {"phase": "Succeeded", "targetUid": uid},
    }


EARLY, LATE = "2030-01-01T11:00:00Z", "2030-01-01T11:30:00Z"


@pytest.mark.parametrize(
    ("ledger", "is_made"),
    [
        ([], True),
        ([ledger_entry("CreateFunction", "a", EARLY)], False),
        ([ledger_entry("CreateFunction", "a", EARLY), ledger_entry("DeleteFunction", "a", EARLY)], True),
        ([ledger_entry("CreateFunction", "a", EARLY), ledger_entry("DeleteFunction", "put-back", LATE)], True),
        ([ledger_entry("CreateFunction", "b", LATE), ledger_entry("DeleteFunction", "a", EARLY)], False),
    ],
    ids=["never accepted", "accepted", "its end was asked for", "its end after it was put back", "accepted anew"],
)
async def test_an_accepted_function_is_put_back_and_not_made_after_a_unit(
    scene: Scene, ledger: list[Json], is_made: bool
) -> None:
    scene.show(scene.world.units, make_unit("own", serverless={"requestID": "words"}))
    for entry in ledger:
        scene.show(scene.world.operations, entry)

    await scene.look()

    assert (GPU_FUNCTIONS.item("words", HOME) in scene.store.objects) is is_made
