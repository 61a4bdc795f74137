"""The resources of the API and what can be done with each: the one list of routes, for sync and async clients."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel, SecretStr
from pydantic_core import to_jsonable_python

from gpu_platform.api_models.events import EventView
from gpu_platform.api_models.functions import CreateFunction, FunctionHealth, FunctionView
from gpu_platform.api_models.health import HealthView, LivenessView
from gpu_platform.api_models.invocations import InvocationView, Invoke, Purged, Redrive, Redriven, new_invocation_id
from gpu_platform.api_models.stacks import DriftReport, PreviewView, StackView
from gpu_platform.api_models.stock import (
    ChangeStockPool,
    CreateStockPool,
    JobView,
    PoolView,
    SeedStockUnits,
    SpecView,
    StockUnitView,
)
from gpu_platform.api_models.storages import CreateStorage, StorageView
from gpu_platform.api_models.units import AddressView, CreateUnit, UnitMetricsView, UnitView
from gpu_platform.client.calls import Answer, Call, Conduct, Operation, Steps, build_path, drop_none, read_nothing
from gpu_platform.client.errors import ApiError
from gpu_platform.client.events import LogStream, ServerEvent, Stream, WatchStream
from gpu_platform.client.method import BlockingRaw, Group, S, method, stream_method
from gpu_platform.client.wait import (
    DEFAULT_TIMEOUT,
    Deadline,
    Verdict,
    Wait,
    find_steady_seconds,
    judge_accepted,
    judge_gone,
    judge_job,
    judge_preview,
    judge_ready,
    judge_recorded,
    judge_recovered,
    judge_seeded,
    judge_settled,
    no_steady_seconds,
)
from gpu_platform.domain.functions import FunctionChange
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.mount_holds import will_release
from gpu_platform.domain.storages import StorageChange
from gpu_platform.domain.units import UnitChange

M = TypeVar("M", bound=BaseModel)
C = TypeVar("C", bound=BaseModel)
U = TypeVar("U", bound=BaseModel)
V = TypeVar("V", UnitView, StorageView, FunctionView, PoolView)

SYNC_SECONDS = 30.0
"""How long the platform waits for the result of a sync invocation without a timeout of its own."""

INVOKE_MARGIN_SECONDS = 20.0
"""On the way there and back, beyond what the platform waits for the result."""


def new_operation_id() -> str:
    return f"op-{secrets.token_hex(8)}"


def to_document(request: BaseModel | Mapping[str, Any]) -> Json:
    """The JSON of a request: of a model, the fields that were set."""
    if isinstance(request, BaseModel):
        document: Json = to_jsonable_python(_reveal(request.model_dump(by_alias=True, exclude_unset=True)))
        return document
    return dict(request)


def _reveal(value: Any) -> Any:
    """Replaces secrets, which a model's own JSON masks, by their text."""
    match value:
        case SecretStr():
            return value.get_secret_value()
        case dict():
            return {key: _reveal(item) for key, item in value.items()}
        case list() | tuple():
            return [_reveal(item) for item in value]
    return value


def read_list(model: type[M]) -> Callable[[Any], tuple[M, ...]]:
    return lambda documents: tuple(model.model_validate(document) for document in documents)


class Objects(Group[S], Generic[S, V]):
    """Objects with a name and a Pulumi stack."""

    model: type[V]
    path: str
    absence: str

    @method
    def get(self, name: str) -> Call[V]:
        return self._get(name)

    @method
    def find(self, name: str) -> Call[V | None]:
        """As `get`, with None for an object that does not exist."""
        return self._find(name)

    @method
    def delete(self, name: str, *, etag: str | None = None) -> Call[None]:
        """Accepts the deletion. The object stays visible as Terminating until all that belongs to it is gone."""
        return Call("DELETE", self._path(name), read_nothing, etag=etag, is_deletion=True)

    @method
    def stack(self, name: str) -> Call[StackView]:
        return self._stack(name)

    @method
    def wait_deleted(self, name: str, *, timeout: float | Deadline = DEFAULT_TIMEOUT) -> Operation[None]:
        """Waits until the object and all that belongs to it are gone."""
        wait = Wait(name, self._find(name), judge_gone, Deadline.of(timeout), "gone", absence_is_news=False)
        return cast("Operation[None]", wait)

    def _wait(
        self,
        name: str,
        judge: Callable[[V | None], Verdict],
        goal: str,
        timeout: float | Deadline,
        steady_seconds: Callable[[Any], float] = no_steady_seconds,
    ) -> Operation[V]:
        """A wait that ends with the object, never with None: `judge` fails an object that does not exist."""
        wait = Wait(name, self._find(name), judge, Deadline.of(timeout), goal, steady_seconds=steady_seconds)
        return cast("Operation[V]", wait)

    def _stack(self, name: str) -> Call[StackView]:
        return Call("GET", self._path(name, "stack"), StackView.model_validate)

    def _find(self, name: str) -> Call[V | None]:
        return self._get(name).or_none(self.absence)

    def _get(self, name: str) -> Call[V]:
        return Call("GET", self._path(name), self._read)

    def _path(self, *segments: str) -> str:
        return build_path(self.path, *segments)

    def _read(self, document: Any) -> V:
        return self.model.model_validate(document)


class Declared(Objects[S, V], Generic[S, V, C, U]):
    """Objects that a tenant declares, with the types of a request and of a change."""

    @method
    def create(self, request: C | Mapping[str, Any]) -> Call[V]:
        """Accepts an object. The same operationID again is answered with the same object; a missing one is chosen."""
        return Call("POST", self.path, self._read, body=_with_operation_id(request))

    @method
    def update(self, name: str, change: U | Mapping[str, Any], *, etag: str | None = None) -> Call[V]:
        """Changes the fields that are given; with an ETag, only if the object is still as it was then."""
        return Call("PUT", self._path(name), self._read, body=to_document(change), etag=etag)

    def _list(self, **filters: str | None) -> Call[tuple[V, ...]]:
        return Call("GET", self.path, read_list(self.model), drop_none(**filters), is_paged=True)

    def _act(self, name: str, action: str, *, body: Json | None = None, is_repeatable: bool = True) -> Call[V]:
        return Call("POST", self._path(name, action), self._read, body=body, is_repeatable=is_repeatable)

    def _events(self, name: str) -> Call[tuple[EventView, ...]]:
        return Call("GET", self._path(name, "events"), read_list(EventView))

    def _logs(self, name: str, *, follow: bool, tail: int | None, **options: str | bool | None) -> Stream[bytes]:
        params = {key: "true" if value is True else value for key, value in options.items() if value}
        lines = None if tail is None else str(tail)
        return LogStream(
            self._path(name, "logs"), drop_none(follow="true" if follow else None, tail=lines, **params), follows=follow
        )


class Units(Declared[S, UnitView, CreateUnit, UnitChange]):
    """A tenant's units: running images with GPUs."""

    model, path, absence = UnitView, "/gpu-units", "gpuunit_not_found"

    @method
    def list(self, spec: str | None = None, phase: str | None = None) -> Call[tuple[UnitView, ...]]:
        return self._list(specName=spec, phase=phase)

    @method
    def stop(self, name: str) -> Call[UnitView]:
        """Releases the unit's GPUs, and keeps its definition and storages."""
        return self._act(name, "stop")

    @method
    def start(self, name: str) -> Call[UnitView]:
        return self._act(name, "start")

    @method
    def restart(self, name: str) -> Call[UnitView]:
        """Sent twice, it restarts the unit twice: the client never repeats it after an answer that left that open."""
        return self._act(name, "restart", is_repeatable=False)

    @method
    def wait(
        self, name: str, phase: str = "Ready", *, generation: int = 0, timeout: float | Deadline = DEFAULT_TIMEOUT
    ) -> Operation[UnitView]:
        """Waits until the unit is in the phase, judged from this generation of its spec or a later one."""
        judge = partial(judge_settled, phase=phase, generation=generation)
        return self._wait(name, judge, phase, timeout, partial(find_steady_seconds, phase=phase))

    @method
    def wait_recorded(self, name: str, *, timeout: float | Deadline = DEFAULT_TIMEOUT) -> Operation[StackView]:
        """Waits until the unit's stack has recorded its accepted spec."""
        return Wait(f"stack of {name}", self._stack(name), judge_recorded, Deadline.of(timeout), "recorded")

    @method
    def events(self, name: str) -> Call[tuple[EventView, ...]]:
        return self._events(name)

    @method
    def metrics(self, name: str) -> Call[UnitMetricsView]:
        return Call("GET", self._path(name, "metrics"), UnitMetricsView.model_validate)

    @method
    def address(self, name: str) -> Call[AddressView]:
        return Call("GET", self._path(name, "address"), AddressView.model_validate)

    @method
    def preview(self, name: str, operation_id: str | None = None) -> Call[PreviewView]:
        """Asks what Pulumi would change. Without an operationID, a preview of the unit that waits or runs is shared."""
        body = {"operationID": operation_id} if operation_id else {}
        return Call("POST", self._path(name, "preview"), PreviewView.model_validate, body=body)

    @method
    def wait_preview(
        self, name: str, operation_id: str, *, timeout: float | Deadline = DEFAULT_TIMEOUT
    ) -> Operation[PreviewView]:
        """Waits for the result of a preview."""
        path = self._path(name, "previews", operation_id)
        look = Call("GET", path, PreviewView.model_validate).or_none("preview_not_found")
        wait = Wait(f"preview of {name}", look, judge_preview, Deadline.of(timeout), "done")
        return cast("Operation[PreviewView]", wait)

    @stream_method
    def logs(
        self,
        name: str,
        *,
        follow: bool = False,
        tail: int | None = None,
        previous: bool = False,
        timestamps: bool = False,
        container: str | None = None,
    ) -> Stream[bytes]:
        return self._logs(name, follow=follow, tail=tail, previous=previous, timestamps=timestamps, container=container)

    @stream_method
    def watch(self) -> Stream[ServerEvent[UnitView]]:
        """Yields changes without an end; a broken connection continues after the last event."""
        return WatchStream(self.path, {"watch": "true"}, self._read)


class Storages(Declared[S, StorageView, CreateStorage, StorageChange]):
    """A tenant's storages: volumes that outlive the units that mount them."""

    model, path, absence = StorageView, "/gpu-storages", "gpustorage_not_found"

    @method
    def list(self, phase: str | None = None) -> Call[tuple[StorageView, ...]]:
        return self._list(phase=phase)

    @method
    def recover(self, name: str, operation_id: str | None = None) -> Call[StorageView]:
        """Repeats a preparation that failed."""
        return self._act(name, "recover", body={"operationID": operation_id or new_operation_id()})

    @method
    def wait(self, name: str, *, timeout: float | Deadline = DEFAULT_TIMEOUT) -> Operation[StorageView]:
        """Waits until the storage is Ready."""
        return self._wait(name, judge_ready, "Ready", timeout)

    @method
    def wait_recovered(
        self, name: str, failed_digest: str | None, *, timeout: float | Deadline = DEFAULT_TIMEOUT
    ) -> Operation[StorageView]:
        """Waits until the storage is Ready; the preparation with this digest is known to have failed."""
        return self._wait(name, partial(judge_recovered, failed_digest=failed_digest), "Ready", timeout)

    @method
    def delete_released(self, name: str, *, timeout: float | Deadline = DEFAULT_TIMEOUT) -> Operation[str]:
        """Deletes the storage as soon as its unit, if that is being deleted or no longer mounts it, has released it."""
        look = _DeleteReleased(cast("Storages[BlockingRaw]", self), name)
        return Wait(name, look, judge_accepted, Deadline.of(timeout), "deleted", absence_is_news=False)

    @method
    def events(self, name: str) -> Call[tuple[EventView, ...]]:
        return self._events(name)

    @stream_method
    def logs(
        self,
        name: str,
        *,
        follow: bool = False,
        tail: int | None = None,
        previous: bool = False,
        timestamps: bool = False,
        of: str | None = None,
    ) -> Stream[bytes]:
        """Reads the log of the preparation, or of the file browser with `of="browser"`."""
        return self._logs(name, follow=follow, tail=tail, previous=previous, timestamps=timestamps, of=of)


@dataclass(frozen=True)
class _DeleteReleased(Operation[str]):
    """Deletes a storage; answers with the refusal while its unit is about to release it, and with "" once accepted."""

    storages: Storages[BlockingRaw]
    name: str

    def steps(self, conduct: Conduct) -> Steps[Answer[str]]:
        try:
            yield from self.storages.delete.build(self.name).steps(conduct)
        except ApiError as error:
            if error.code != "storage_in_use" or not (yield from self._will_be_released(conduct)):
                raise
            return Answer(str(error), str)
        return Answer("", str)

    def _will_be_released(self, conduct: Conduct) -> Steps[bool]:
        storage = yield from self.storages.find.build(self.name).steps(conduct)
        units = Units(self.storages.sender)
        for name in storage.value.mounted_by if storage.value else ():
            unit = yield from units.find.build(name).steps(conduct)
            if not will_release(unit.document, self.name):
                return False
        return True


class Functions(Declared[S, FunctionView, CreateFunction, FunctionChange]):
    """A tenant's functions: code that answers invocations."""

    model, path, absence = FunctionView, "/serverless/functions", "function_not_found"

    @method
    def list(self) -> Call[tuple[FunctionView, ...]]:
        return self._list()

    @method
    def wait(self, name: str, *, timeout: float | Deadline = DEFAULT_TIMEOUT) -> Operation[FunctionView]:
        """Waits until the function is Ready."""
        return self._wait(name, judge_ready, "Ready", timeout)

    @method
    def health(self, name: str) -> Call[FunctionHealth]:
        return Call("GET", self._path(name, "health"), FunctionHealth.model_validate)

    @method
    def purge(self, name: str) -> Call[Purged]:
        """Cancels all invocations that wait for the function."""
        return Call("DELETE", self._path(name, "queue"), Purged.model_validate)

    @stream_method
    def logs(
        self,
        name: str,
        *,
        follow: bool = False,
        tail: int | None = None,
        timestamps: bool = False,
        worker: str | None = None,
    ) -> Stream[bytes]:
        return self._logs(name, follow=follow, tail=tail, timestamps=timestamps, worker=worker)


class Invocations(Group[S]):
    """Requests to functions, and their records."""

    path = "/serverless/invocations"

    @method
    def invoke(
        self, request: Invoke | Mapping[str, Any], *, wait_seconds: float = SYNC_SECONDS
    ) -> Call[InvocationView]:
        """Invokes a function. A missing invocationID is chosen here, so that the request can be sent again without
        running the function twice; `wait_seconds` is how long a sync one may take."""
        body = {"invocationID": new_invocation_id(), **to_document(request)}
        silence = wait_seconds + INVOKE_MARGIN_SECONDS
        return Call("POST", self.path, InvocationView.model_validate, body=body, silence_seconds=silence)

    @method
    def get(self, invocation_id: str) -> Call[InvocationView]:
        return self._one("GET", invocation_id)

    @method
    def list(
        self, function: str | None = None, state: str | None = None, limit: int | None = None
    ) -> Call[tuple[InvocationView, ...]]:
        params = drop_none(function=function, state=state)
        return Call("GET", self.path, read_list(InvocationView), params, is_paged=True, limit=limit)

    @method
    def cancel(self, invocation_id: str) -> Call[InvocationView]:
        return self._one("POST", invocation_id, "cancel")

    @method
    def delete(self, invocation_id: str) -> Call[InvocationView]:
        """Deletes the record of an invocation that is over, with its payload and result."""
        return self._one("DELETE", invocation_id)

    @method
    def retry(self, invocation_id: str) -> Call[InvocationView]:
        """Invokes the function again with the same payload, under a new id."""
        return self._one("POST", invocation_id, "retry", body={})

    @stream_method
    def watch(self, function: str | None = None) -> Stream[ServerEvent[InvocationView]]:
        return WatchStream(self.path, drop_none(watch="true", function=function), InvocationView.model_validate)

    def _one(self, verb: Any, *segments: str, body: Json | None = None) -> Call[InvocationView]:
        return Call(verb, build_path(self.path, *segments), InvocationView.model_validate, body=body)


class DeadLetters(Group[S]):
    """Invocations that no worker could answer."""

    path = "/serverless/dead-letters"

    @method
    def list(self, function: str | None = None) -> Call[tuple[InvocationView, ...]]:
        return Call("GET", self.path, read_list(InvocationView), drop_none(function=function), is_paged=True)

    @method
    def redrive(self, request: Redrive | Mapping[str, Any]) -> Call[Redriven]:
        """Invokes the functions of dead letters again, each under a new id; a second request has no effect."""
        return Call("POST", f"{self.path}/redrive", Redriven.model_validate, body=to_document(request))


class Stock(Group[S]):
    """Warm stock, for operators."""

    path = "/operator/stock-units"

    @method
    def list(
        self, spec: str | None = None, pool: str | None = None, state: str | None = None
    ) -> Call[tuple[StockUnitView, ...]]:
        return Call("GET", self.path, read_list(StockUnitView), drop_none(specName=spec, pool=pool, state=state))

    @method
    def wait_seeded(
        self, spec: str, pool: str, *, timeout: float | Deadline = DEFAULT_TIMEOUT
    ) -> Operation[tuple[StockUnitView, ...]]:
        """Waits until the stock of the pool that a `seed` made can be claimed."""
        look = Call("GET", self.path, read_list(StockUnitView), drop_none(pool=pool))
        return Wait(f"stock of {spec}", look, judge_seeded, Deadline.of(timeout), "ready to be used")

    @method
    def seed(self, request: SeedStockUnits | Mapping[str, Any]) -> Call[JobView]:
        return Call("POST", self.path, JobView.model_validate, body=_with_operation_id(request))

    @method
    def delete(self, name: str) -> Call[None]:
        return Call("DELETE", build_path(self.path, name), read_nothing, is_deletion=True)


class Pools(Objects[S, PoolView]):
    """Stock pools, for operators."""

    model, path, absence = PoolView, "/operator/stockpools", "stockpool_not_found"

    @method
    def list(self) -> Call[tuple[PoolView, ...]]:
        return Call("GET", self.path, read_list(PoolView))

    @method
    def create(self, request: CreateStockPool | Mapping[str, Any]) -> Call[JobView]:
        """Accepts the job that makes a pool."""
        return Call("POST", self.path, JobView.model_validate, body=_with_operation_id(request))

    @method
    def update(self, name: str, change: ChangeStockPool | Mapping[str, Any]) -> Call[PoolView]:
        return Call("PUT", self._path(name), self._read, body=to_document(change))

    @method
    def wait(self, name: str, *, timeout: float | Deadline = DEFAULT_TIMEOUT) -> Operation[PoolView]:
        """Waits until the pool is full."""
        wait = Wait(f"pool {name}", self._find(name), judge_ready, Deadline.of(timeout), "Ready")
        return cast("Operation[PoolView]", wait)


class Specs(Group[S]):
    """The catalogue: the sizes of units."""

    path = "/operator/specs"

    @method
    def list(self) -> Call[tuple[SpecView, ...]]:
        return Call("GET", self.path, read_list(SpecView))

    @method
    def get(self, name: str) -> Call[SpecView]:
        return Call("GET", build_path(self.path, name), SpecView.model_validate)

    @method
    def find(self, name: str) -> Call[SpecView | None]:
        return Call("GET", build_path(self.path, name), SpecView.model_validate).or_none("spec_not_found")


class Jobs(Group[S]):
    """Operations that operators started."""

    path = "/operator/jobs"

    @method
    def list(self) -> Call[tuple[JobView, ...]]:
        return Call("GET", self.path, read_list(JobView))

    @method
    def get(self, operation_id: str) -> Call[JobView]:
        return self._get(operation_id)

    @method
    def find(self, operation_id: str) -> Call[JobView | None]:
        return self._get(operation_id).or_none("job_not_found")

    @method
    def wait(self, operation_id: str, *, timeout: float | Deadline = DEFAULT_TIMEOUT) -> Operation[JobView]:
        """Waits until the job succeeded: its objects exist, ready or not."""
        look = self._get(operation_id).or_none("job_not_found")
        wait = Wait(f"job {operation_id}", look, judge_job, Deadline.of(timeout), "done")
        return cast("Operation[JobView]", wait)

    def _get(self, operation_id: str) -> Call[JobView]:
        return Call("GET", build_path(self.path, operation_id), JobView.model_validate)


class Drift(Group[S]):
    """Differences between accepted specs, live objects and stacks, for operators."""

    @method
    def get(self) -> Call[DriftReport]:
        return Call("GET", "/operator/drift", DriftReport.model_validate)


class Health(Group[S]):
    """The state of the whole platform."""

    @method
    def get(self) -> Call[HealthView | LivenessView]:
        """Returns the full health; without a key, only that the API answers."""
        return Call("GET", "/health", _read_health)


class Resources(Generic[S]):
    """All resources of one client."""

    def __init__(self, sender: S) -> None:
        self.units = Units(sender)
        self.storages = Storages(sender)
        self.functions = Functions(sender)
        self.invocations = Invocations(sender)
        self.dead_letters = DeadLetters(sender)
        self.stock = Stock(sender)
        self.pools = Pools(sender)
        self.specs = Specs(sender)
        self.jobs = Jobs(sender)
        self.drift = Drift(sender)
        self.health = Health(sender)


def _with_operation_id(request: BaseModel | Mapping[str, Any]) -> Json:
    document = to_document(request)
    return document if document.get("operationID") else {**document, "operationID": new_operation_id()}


def _read_health(document: Any) -> HealthView | LivenessView:
    model = LivenessView if "status" in document else HealthView
    return model.model_validate(document)
