"""The functions controller: observe, plan, apply; and which changes concern which function."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpu_platform.controller.loop import Done, Key, RequeueAfter, Result, Trigger
from gpu_platform.domain import names
from gpu_platform.domain.functions import GPUFunctionStatus
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import key_of
from gpu_platform.domain.tenants import tenant_namespace, tenant_of
from gpu_platform.kube import AlreadyExistsError, KubeError
from gpu_platform.kube.paths import GPU_FUNCTIONS
from gpu_platform.kube.requests import ObjectClient, find
from gpu_platform.nats.errors import QueueUnavailableError
from reconciler.expectations import PATIENCE, OwnWrites, Place, place_of
from reconciler.functions.apply import apply_workers, describe_refusal
from reconciler.functions.credentials import CredentialsError, Signer, ensure_secret
from reconciler.functions.observe import Observed, build_after_unit, is_put_back, observe_function
from reconciler.functions.plan import count_workers, find_problem, plan_function
from reconciler.functions.queue_link import QueueLink, StillConnectingError
from reconciler.functions.scaling import Scaler
from reconciler.functions.workers import WorkerStarts
from reconciler.guarded_writes import CreateObject, Recorder, apply_write, write_status
from reconciler.informers import World, function_key_of

EVERYTHING: Key = ("", "queue")
"""Stands for all consumers."""

SWEEP_INTERVAL = timedelta(seconds=60)
RETRY = timedelta(seconds=5)
CONNECTING = timedelta(seconds=1)
PUT_BACK = timedelta(seconds=10)
REFUSED = timedelta(seconds=60)
"""Before what the API server refused is tried again: each try takes stock and gives it back."""

STOCK_PATIENCE = timedelta(seconds=10)
"""Stock that becomes free brings a pass by itself; this is for what was missed."""

BELIEVED = timedelta(seconds=30)
"""How long a consumer and a Secret that were there are not asked for again."""


@dataclass(frozen=True)
class Refusal:
    words: str
    generation: object
    """Of the function: a changed one is tried at once."""

    until: datetime


class FunctionsController:
    name = "functions"

    def __init__(
        self,
        world: World,
        client: ObjectClient,
        events: Recorder,
        queue: QueueLink,
        signer: Signer,
        scaler: Scaler,
        starts: WorkerStarts,
        now: Callable[[], datetime],
        setup_problem: str | None = None,
        look_again: Callable[[Key], None] = lambda _: None,
    ) -> None:
        """`setup_problem`: why no unit can take calls at all. `look_again` brings a pass over a key."""
        self._world = world
        self._client = client
        self._events = events
        self._queue = queue
        self._signer = signer
        self._scaler = scaler
        self._starts = starts
        self._now = now
        self._setup_problem = setup_problem
        self._refusals: dict[Key, Refusal] = {}
        self._look_again = look_again
        self._own_writes = OwnWrites(now)
        self._ensured: dict[Key, tuple[object, datetime]] = {}

    async def reconcile(self, namespace: str, name: str) -> Result:
        if (namespace, name) == EVERYTHING:
            return await self._sweep()
        observed = observe_function(self._world, namespace, name, self._setup_problem)
        if observed is None:
            return await self._reconcile_missing(namespace, name)
        self._starts.note((namespace, name), observed.own, self._world.pods_of)
        if self._own_writes.are_outdated(_places_of(observed)):
            return RequeueAfter(PATIENCE, "the watch has not shown the last write yet")
        try:
            preparation_problem = await self._prepare(observed)
            # What fails because NATS stores nothing is told with the cause.
            queue_problem = self._queue.storage_problem or preparation_problem
        except StillConnectingError as error:
            # Nobody knows yet whether anything is wrong: what was said of the function stays.
            return RequeueAfter(CONNECTING, str(error))
        except CredentialsError as error:
            queue_problem = str(error)
            observed = replace(observed, setup_problem=queue_problem)
        result = await self._carry_out(observed, queue_problem)
        return RequeueAfter(RETRY, queue_problem) if queue_problem is not None else result

    async def _carry_out(self, observed: Observed, queue_problem: str | None) -> Result:
        function, wanted, now = observed.function, await self._decide(observed), self._now()
        refusal = self._find_refusal(function)
        plan = plan_function(observed, wanted, queue_problem, now, refusal.words if refusal else None)
        words = await apply_workers(plan, observed, self._client, self._own_writes, self._now)
        if words is not None:
            refusal = Refusal(words, function["metadata"].get("generation"), now + REFUSED)
            self._refusals[key_of(function)] = refusal
            plan = plan_function(observed, wanted, queue_problem, now, words)
        old = GPUFunctionStatus.of(function)
        await write_status(self._client, self._own_writes, "GPUFunction", function, old, plan.status)
        if refusal is not None:
            return RequeueAfter(refusal.until - now, refusal.words)
        return RequeueAfter(STOCK_PATIENCE, "there is no free stock") if plan.lacks_stock else Done()

    def _find_refusal(self, function: Json) -> Refusal | None:
        """The last one, while it is too early to try again."""
        refusal = self._refusals.get(key_of(function))
        if refusal is None:
            return None
        if refusal.until > self._now() and refusal.generation == function["metadata"].get("generation"):
            return refusal
        del self._refusals[key_of(function)]
        return None

    async def _decide(self, observed: Observed) -> int:
        """How many workers there are to be. Before any is taken away, the queue is asked once more."""
        key, spec, workers = key_of(observed.function), observed.spec, count_workers(observed)
        if spec is None:
            return workers.there
        wanted = self._scaler.plan(key, spec, workers).wanted
        if wanted >= workers.there:
            return wanted
        try:
            backlog = await self._queue.read_backlog(tenant_of(key[0]) or "", key[1])
        except QueueUnavailableError:
            return workers.there
        if backlog is not None:
            self._scaler.take(key, backlog)
        return self._scaler.plan(key, spec, workers).wanted

    def look_at_all(self) -> None:
        """Brings a pass over every function."""
        for function in self._world.functions.objects():
            self._look_again(key_of(function))

    def triggers(self) -> tuple[Trigger, ...]:
        world = self._world
        return (
            Trigger(world.functions, lambda function: [key_of(function)]),
            Trigger(world.units, self._unit_keys),
            Trigger(world.specs, lambda spec: self._functions_of_spec(spec["metadata"]["name"])),
            Trigger(world.namespaces, lambda _: [EVERYTHING]),
        )

    async def _prepare(self, observed: Observed) -> str | None:
        """Consumer and credentials, or why there is no consumer. The workers are made anyway: once NATS is back, they
        begin. CredentialsError: none of them could start."""
        function, spec = observed.function, observed.spec
        key = key_of(function)
        if spec is None or "deletionTimestamp" in function["metadata"] or find_problem(observed) is not None:
            return None
        facts = (function["metadata"]["uid"], spec.ack_wait_seconds)
        known, at = self._ensured.get(key, (None, None))
        if known == facts and at is not None and self._now() - at < BELIEVED:
            return None
        self._ensured.pop(key, None)
        tenant = tenant_of(key[0]) or ""
        try:
            # The Secret first: without it no worker of the function can start at all.
            await ensure_secret(self._client, function, tenant, self._signer, self._now())
            await self._queue.ensure_consumer(tenant, key[1], timedelta(seconds=spec.ack_wait_seconds))
        except StillConnectingError:
            raise
        except QueueUnavailableError as error:
            return str(error)
        self._ensured[key] = facts, self._now()
        return None

    async def _reconcile_missing(self, namespace: str, name: str) -> Result:
        """It is made after the unit that takes its calls; without one, its consumer goes."""
        self._ensured.pop((namespace, name), None)
        self._refusals.pop((namespace, name), None)
        self._scaler.forget((namespace, name))
        self._starts.forget((namespace, name))
        tenant = tenant_of(namespace)
        if tenant is None:
            return Done()
        if (found := build_after_unit(self._world, namespace, name)) is not None:
            if is_put_back(self._world, namespace, name):
                return RequeueAfter(PUT_BACK, "the stack worker puts it back")
            return await self._make(*found)
        # Where the namespace is gone, there is nothing to ask for.
        has_namespace = self._world.namespaces.get(None, namespace) is not None
        if has_namespace and await find(self._client, GPU_FUNCTIONS, name, namespace) is not None:
            # The cache will show it in a moment.
            return RequeueAfter(PATIENCE, "the watch has not shown the function yet")
        try:
            await self._queue.remove_consumer(tenant, name)
        except QueueUnavailableError as error:
            return RequeueAfter(RETRY, str(error))
        return Done()

    async def _make(self, unit: Json, function: Json) -> Result:
        try:
            await apply_write(CreateObject("GPUFunction", function), self._client)
        except AlreadyExistsError:
            return RequeueAfter(PATIENCE, "the watch has not shown the function yet")
        except KubeError as error:
            if not error.is_refusal:
                raise
            name = function["metadata"]["name"]
            words = f"the function {name!r} cannot be created for this unit: {describe_refusal(error)}"
            await self._events.record(unit, "Warning", "FunctionRefused", words)
            return RequeueAfter(REFUSED, words)
        return Done()

    async def _sweep(self) -> Result:
        """Consumers whose function went while nobody looked. Each is looked at by a pass of its own: what fails there
        stops none of the others."""
        try:
            consumers = await self._queue.list_consumers()
        except QueueUnavailableError:
            return RequeueAfter(RETRY, "NATS is away")
        for tenant, function in sorted(consumers):
            key = (tenant_namespace(tenant), function)
            if self._world.functions.get(*key) is None:
                self._look_again(key)
        return RequeueAfter(SWEEP_INTERVAL, "looks again and again")

    def _unit_keys(self, unit: Json) -> Iterable[Key]:
        """Of a worker its function; of stock the functions that may be waiting for it."""
        if (key := function_key_of(unit)) is not None:
            yield key
        for owner in unit["metadata"].get("ownerReferences") or ():
            if owner["kind"] == "GPUFunction":
                yield unit["metadata"]["namespace"], owner["name"]
        if names.is_stock_namespace(unit["metadata"]["namespace"]):
            yield from filter(self._is_short, self._functions_of_spec(unit["spec"].get("specName", "")))

    def _functions_of_spec(self, spec_name: str) -> list[Key]:
        return [key_of(function) for function in self._world.functions.by_index("spec", spec_name)]

    def _is_short(self, key: Key) -> bool:
        function = self._world.functions.get(*key)
        fewest = (function or {}).get("spec", {}).get("minWorkers", 0)
        return len(self._world.workers_of(*key)) < max(int(fewest), self._scaler.wanted(key))


def _places_of(observed: Observed) -> Iterator[tuple[Place, Json | None]]:
    """Every object that the plan may write, as it was seen."""
    function = observed.function
    yield place_of("GPUFunction", function), function
    namespace, name = key_of(function)
    seen = {unit["metadata"]["name"]: unit for unit in (*observed.own, *observed.strangers)}
    most = observed.spec.max_workers if observed.spec else 0
    ordinals = range(most + len(observed.strangers))
    for unit in {*seen, *(names.worker_name(name, ordinal) for ordinal in ordinals)}:
        yield ("GPUUnit", namespace, unit), seen.get(unit)
