"""The platform's API as Python calls: one method per route. Commands use this; the HTTP is in `transport`."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any, Generic, Self, TypeVar
from urllib.parse import quote

from gpu_platform.cli.errors import ApiError, UnreachableError
from gpu_platform.cli.options import said
from gpu_platform.cli.server_events import EventReader, ServerEvent
from gpu_platform.cli.transport import SILENCE_SECONDS, Transport
from gpu_platform.cli.views import (
    AddressView,
    DriftReport,
    EventView,
    FunctionHealthView,
    FunctionView,
    HealthView,
    InvocationView,
    JobView,
    Json,
    PoolView,
    PreviewView,
    SpecView,
    StackView,
    StockUnitView,
    StorageView,
    UnitMetricsView,
    UnitView,
)

STORAGES = "/gpu-storages"
FUNCTIONS = "/serverless/functions"
INVOCATIONS = "/serverless/invocations"
DEAD_LETTERS = "/serverless/dead-letters"

RECONNECT_SECONDS = 1.0
RECONNECTS = 10
# The API says every 15 s that it is still there.
WATCH_SILENCE_SECONDS = 60.0

View = TypeVar("View")


@dataclass(frozen=True)
class Accepted(Generic[View]):
    """The answer to a request with an operationID."""

    view: View
    is_new: bool
    """False: it was accepted before, and this is a replay."""


@dataclass(frozen=True)
class Tagged(Generic[View]):
    """A view, and what says later whether it is still the same."""

    view: View
    etag: str | None


class PlatformClient:
    """One session with the API. Close it, or use it in a `with`."""

    def __init__(self, url: str, key: str | None) -> None:
        self._transport = Transport(url, key)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    # The platform

    def get_health(self) -> HealthView:
        view: HealthView = self._data("GET", "/health")
        return view

    def list_specs(self) -> list[SpecView]:
        views: list[SpecView] = self._data("GET", "/operator/specs")
        return views

    def get_spec(self, name: str) -> SpecView:
        view: SpecView = self._data("GET", f"/operator/specs/{_segment(name)}")
        return view

    # Units

    def list_units(self, spec: str | None = None, phase: str | None = None) -> list[UnitView]:
        """All of them, however many pages that takes."""
        return list(self._pages("/gpu-units", said(specName=spec, phase=phase)))

    def get_unit(self, name: str) -> Tagged[UnitView]:
        answer = self._transport.call("GET", _unit_path(name))
        return Tagged(answer.body["data"], answer.etag)

    def find_unit(self, name: str) -> UnitView | None:
        return _find(lambda: self.get_unit(name).view, "gpuunit_not_found")

    def create_unit(self, request: Json) -> Accepted[UnitView]:
        return self._accepted("/gpu-units", request)

    def update_unit(self, name: str, change: Json, etag: str | None = None) -> UnitView:
        view: UnitView = self._data("PUT", _unit_path(name), body=change, etag=etag)
        return view

    def delete_unit(self, name: str) -> None:
        self._transport.call("DELETE", _unit_path(name))

    def stop_unit(self, name: str) -> UnitView:
        view: UnitView = self._data("POST", f"{_unit_path(name)}/stop")
        return view

    def start_unit(self, name: str) -> UnitView:
        view: UnitView = self._data("POST", f"{_unit_path(name)}/start")
        return view

    def restart_unit(self, name: str) -> UnitView:
        # Twice asked is twice restarted.
        view: UnitView = self._data("POST", f"{_unit_path(name)}/restart", is_repeatable=False)
        return view

    def list_events(self, name: str) -> list[EventView]:
        views: list[EventView] = self._data("GET", f"{_unit_path(name)}/events")
        return views

    def get_unit_metrics(self, name: str) -> UnitMetricsView:
        view: UnitMetricsView = self._data("GET", f"{_unit_path(name)}/metrics")
        return view

    def get_address(self, name: str) -> AddressView:
        view: AddressView = self._data("GET", f"{_unit_path(name)}/address")
        return view

    def get_unit_stack(self, name: str) -> StackView:
        view: StackView = self._data("GET", f"{_unit_path(name)}/stack")
        return view

    def preview_unit(self, name: str, operation_id: str) -> Accepted[PreviewView]:
        return self._accepted(f"{_unit_path(name)}/preview", {"operationID": operation_id})

    def find_preview(self, name: str, operation_id: str) -> PreviewView | None:
        path = f"{_unit_path(name)}/previews/{_segment(operation_id)}"
        return _find(lambda: self._data("GET", path), "preview_not_found")

    def read_logs(
        self, name: str, *, follow: bool = False, tail: int | None = None, previous: bool = False, stamps: bool = False
    ) -> Iterator[bytes]:
        """Pieces of the log as they come."""
        params = said(
            follow="true" if follow else None,
            tail=None if tail is None else str(tail),
            previous="true" if previous else None,
            timestamps="true" if stamps else None,
        )
        # A program that writes nothing is no broken connection.
        silence = None if follow else SILENCE_SECONDS
        with self._transport.stream(f"{_unit_path(name)}/logs", params, silence_seconds=silence) as log:
            yield from log.read_pieces()

    def watch_units(self) -> Iterator[ServerEvent]:
        return self._watch("/gpu-units", {"watch": "true"})

    # Storages

    def list_storages(self, phase: str | None = None) -> list[StorageView]:
        return list(self._pages(STORAGES, said(phase=phase)))

    def get_storage(self, name: str) -> Tagged[StorageView]:
        answer = self._transport.call("GET", _storage_path(name))
        return Tagged(answer.body["data"], answer.etag)

    def find_storage(self, name: str) -> StorageView | None:
        return _find(lambda: self.get_storage(name).view, "gpustorage_not_found")

    def create_storage(self, request: Json) -> Accepted[StorageView]:
        return self._accepted(STORAGES, request)

    def update_storage(self, name: str, change: Json) -> StorageView:
        view: StorageView = self._data("PUT", _storage_path(name), body=change)
        return view

    def recover_storage(self, name: str, operation_id: str) -> StorageView:
        body = {"operationID": operation_id}
        view: StorageView = self._data("POST", f"{_storage_path(name)}/recover", body=body)
        return view

    def delete_storage(self, name: str) -> None:
        self._transport.call("DELETE", _storage_path(name))

    def get_storage_stack(self, name: str) -> StackView:
        view: StackView = self._data("GET", f"{_storage_path(name)}/stack")
        return view

    # Stock, pools and the jobs that make them

    def list_stock(
        self, spec: str | None = None, pool: str | None = None, state: str | None = None
    ) -> list[StockUnitView]:
        params = said(specName=spec, pool=pool, state=state)
        views: list[StockUnitView] = self._data("GET", "/operator/stock-units", params=params)
        return views

    def seed_stock(self, request: Json) -> Accepted[JobView]:
        return self._accepted("/operator/stock-units", request)

    def delete_stock(self, name: str) -> None:
        self._transport.call("DELETE", f"/operator/stock-units/{_segment(name)}")

    def list_pools(self) -> list[PoolView]:
        views: list[PoolView] = self._data("GET", "/operator/stockpools")
        return views

    def get_pool(self, name: str) -> PoolView:
        view: PoolView = self._data("GET", _pool_path(name))
        return view

    def find_pool(self, name: str) -> PoolView | None:
        return _find(lambda: self.get_pool(name), "stockpool_not_found")

    def create_pool(self, request: Json) -> Accepted[JobView]:
        return self._accepted("/operator/stockpools", request)

    def update_pool(self, name: str, change: Json) -> PoolView:
        view: PoolView = self._data("PUT", _pool_path(name), body=change)
        return view

    def get_pool_stack(self, name: str) -> StackView:
        view: StackView = self._data("GET", f"{_pool_path(name)}/stack")
        return view

    def delete_pool(self, name: str) -> None:
        self._transport.call("DELETE", _pool_path(name))

    def get_drift(self) -> DriftReport:
        report: DriftReport = self._data("GET", "/operator/drift")
        return report

    def list_jobs(self) -> list[JobView]:
        views: list[JobView] = self._data("GET", "/operator/jobs")
        return views

    def get_job(self, operation_id: str) -> JobView:
        view: JobView = self._data("GET", f"/operator/jobs/{_segment(operation_id)}")
        return view

    def find_job(self, operation_id: str) -> JobView | None:
        return _find(lambda: self.get_job(operation_id), "job_not_found")

    # Functions and their calls

    def list_functions(self) -> list[FunctionView]:
        return list(self._pages(FUNCTIONS, {}))

    def get_function(self, name: str) -> Tagged[FunctionView]:
        answer = self._transport.call("GET", _function_path(name))
        return Tagged(answer.body["data"], answer.etag)

    def find_function(self, name: str) -> FunctionView | None:
        return _find(lambda: self.get_function(name).view, "function_not_found")

    def create_function(self, request: Json) -> Accepted[FunctionView]:
        return self._accepted(FUNCTIONS, request)

    def update_function(self, name: str, change: Json, etag: str | None = None) -> FunctionView:
        view: FunctionView = self._data("PUT", _function_path(name), body=change, etag=etag)
        return view

    def delete_function(self, name: str) -> None:
        self._transport.call("DELETE", _function_path(name))

    def get_function_health(self, name: str) -> FunctionHealthView:
        view: FunctionHealthView = self._data("GET", f"{_function_path(name)}/health")
        return view

    def get_function_stack(self, name: str) -> StackView:
        view: StackView = self._data("GET", f"{_function_path(name)}/stack")
        return view

    def purge_function(self, name: str) -> int:
        """How many calls were cancelled."""
        return int(self._data("DELETE", f"{_function_path(name)}/queue")["cancelled"])

    def invoke(self, request: Json, *, silence_seconds: float) -> Accepted[InvocationView]:
        """The answer to a call that waits for its result may take as long as that is waited for."""
        answer = self._transport.call("POST", INVOCATIONS, body=request, silence_seconds=silence_seconds)
        return Accepted(answer.body["data"], answer.is_new)

    def get_invocation(self, invocation_id: str) -> InvocationView:
        view: InvocationView = self._data("GET", _invocation_path(invocation_id))
        return view

    def list_invocations(
        self, function: str | None = None, state: str | None = None, limit: int | None = None
    ) -> list[InvocationView]:
        """The first so many; all of them without a limit."""
        return list(islice(self._pages(INVOCATIONS, said(function=function, state=state)), limit))

    def cancel_invocation(self, invocation_id: str) -> InvocationView:
        view: InvocationView = self._data("POST", f"{_invocation_path(invocation_id)}/cancel")
        return view

    def retry_invocation(self, invocation_id: str) -> Accepted[InvocationView]:
        return self._accepted(f"{_invocation_path(invocation_id)}/retry", {})

    def watch_invocations(self, function: str | None = None) -> Iterator[ServerEvent]:
        return self._watch(INVOCATIONS, said(watch="true", function=function))

    def list_dead_letters(self, function: str | None = None) -> list[InvocationView]:
        return list(self._pages(DEAD_LETTERS, said(function=function)))

    def redrive(self, request: Json) -> Json:
        answer: Json = self._data("POST", f"{DEAD_LETTERS}/redrive", body=request)
        return answer

    def _watch(self, path: str, params: dict[str, str]) -> Iterator[ServerEvent]:
        """What happens, without an end: a broken connection goes on after the last event that came."""
        reader = EventReader()
        misses: int | None = None
        while True:
            headers = {"Last-Event-ID": reader.last_id} if reader.last_id else {}
            options: Json = {"headers": headers, "silence_seconds": WATCH_SILENCE_SECONDS}
            try:
                with self._transport.stream(path, params, **options) as stream:
                    misses = 0
                    yield from reader.read(stream.read_lines())
            except (UnreachableError, ApiError) as error:
                # Whoever never answered is not waited for.
                if misses is None or misses >= RECONNECTS or not error.is_passing:
                    raise
                misses += 1
            time.sleep(RECONNECT_SECONDS)

    def _pages(self, path: str, params: dict[str, str]) -> Iterator[Any]:
        """The items of a list, page by page."""
        while True:
            page = self._transport.call("GET", path, params=params).body
            yield from page["data"]
            if not (token := page.get("continue")):
                return
            params = {**params, "continue": token}

    def _data(self, method: str, path: str, **options: Any) -> Any:
        return self._transport.call(method, path, **options).body["data"]

    def _accepted(self, path: str, request: Json) -> Accepted[Any]:
        answer = self._transport.call("POST", path, body=request)
        return Accepted(answer.body["data"], answer.is_new)


def _find(get: Callable[[], View], absence: str) -> View | None:
    """None for what the API says is not there. Any other 404 is about the address, not about the thing."""
    try:
        return get()
    except ApiError as error:
        if error.code != absence:
            raise
        return None


def _segment(name: str) -> str:
    return quote(name, safe="")


def _unit_path(name: str) -> str:
    return f"/gpu-units/{_segment(name)}"


def _storage_path(name: str) -> str:
    return f"{STORAGES}/{_segment(name)}"


def _function_path(name: str) -> str:
    return f"{FUNCTIONS}/{_segment(name)}"


def _invocation_path(invocation_id: str) -> str:
    return f"{INVOCATIONS}/{_segment(invocation_id)}"


def _pool_path(name: str) -> str:
    return f"/operator/stockpools/{_segment(name)}"
