"""The platform's API as Python calls: one method per route. Commands use this; what routes have in common is in
`session`, the HTTP in `transport`."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

from gpu_platform.cli.errors import ApiError, UnsendableError
from gpu_platform.cli.options import said
from gpu_platform.cli.server_events import ServerEvent
from gpu_platform.cli.session import Accepted, Session, Tagged
from gpu_platform.cli.transport import SILENCE_SECONDS
from gpu_platform.cli.views import (
    AddressView,
    DriftReport,
    EventView,
    FunctionHealthView,
    FunctionView,
    HealthView,
    InvocationView,
    JobView,
    LivenessView,
    PoolView,
    PreviewView,
    SpecView,
    StackView,
    StockUnitView,
    StorageView,
    UnitMetricsView,
    UnitView,
)
from gpu_platform.domain.json_text import Json

STORAGES = "/gpu-storages"
FUNCTIONS = "/serverless/functions"
INVOCATIONS = "/serverless/invocations"
DEAD_LETTERS = "/serverless/dead-letters"

View = TypeVar("View")


class PlatformClient:
    """One session with the API. Close it, or use it in a `with`."""

    def __init__(self, url: str, key: str | None) -> None:
        self._session = Session(url, key)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._session.close()

    # The platform

    def get_health(self) -> HealthView | LivenessView:
        view: HealthView | LivenessView = self._session.data("GET", "/health")
        return view

    def list_specs(self) -> list[SpecView]:
        views: list[SpecView] = self._session.data("GET", "/operator/specs")
        return views

    def get_spec(self, name: str) -> SpecView:
        view: SpecView = self._session.data("GET", f"/operator/specs/{_segment(name)}")
        return view

    # Units

    def list_units(self, spec: str | None = None, phase: str | None = None) -> list[UnitView]:
        """All of them, however many pages that takes."""
        return list(self._session.pages("/gpu-units", said(specName=spec, phase=phase)))

    def get_unit(self, name: str) -> Tagged[UnitView]:
        return self._session.tagged(_unit_path(name))

    def find_unit(self, name: str) -> UnitView | None:
        return _find(lambda: self.get_unit(name).view, "gpuunit_not_found")

    def create_unit(self, request: Json) -> Accepted[UnitView]:
        return self._session.accepted("/gpu-units", request)

    def update_unit(self, name: str, change: Json, etag: str | None = None) -> UnitView:
        view: UnitView = self._session.data("PUT", _unit_path(name), body=change, etag=etag)
        return view

    def delete_unit(self, name: str) -> None:
        self._session.delete(_unit_path(name))

    def stop_unit(self, name: str) -> UnitView:
        view: UnitView = self._session.data("POST", f"{_unit_path(name)}/stop")
        return view

    def start_unit(self, name: str) -> UnitView:
        view: UnitView = self._session.data("POST", f"{_unit_path(name)}/start")
        return view

    def restart_unit(self, name: str) -> UnitView:
        # Twice asked is twice restarted.
        view: UnitView = self._session.data("POST", f"{_unit_path(name)}/restart", is_repeatable=False)
        return view

    def list_unit_events(self, name: str) -> list[EventView]:
        views: list[EventView] = self._session.data("GET", f"{_unit_path(name)}/events")
        return views

    def get_unit_metrics(self, name: str) -> UnitMetricsView:
        view: UnitMetricsView = self._session.data("GET", f"{_unit_path(name)}/metrics")
        return view

    def get_address(self, name: str) -> AddressView:
        view: AddressView = self._session.data("GET", f"{_unit_path(name)}/address")
        return view

    def get_unit_stack(self, name: str) -> StackView:
        view: StackView = self._session.data("GET", f"{_unit_path(name)}/stack")
        return view

    def preview_unit(self, name: str, operation_id: str | None) -> Accepted[PreviewView]:
        """Without an operationID a preview of the unit that waits or runs is shared."""
        request = {"operationID": operation_id} if operation_id else {}
        return self._session.accepted(f"{_unit_path(name)}/preview", request)

    def find_preview(self, name: str, operation_id: str) -> PreviewView | None:
        path = f"{_unit_path(name)}/previews/{_segment(operation_id)}"
        return _find(lambda: self._session.data("GET", path), "preview_not_found")

    def read_unit_logs(self, name: str, params: Mapping[str, str]) -> Iterator[bytes]:
        return self._read_logs(_unit_path(name), params)

    def watch_units(self) -> Iterator[ServerEvent]:
        return self._session.watch("/gpu-units", {"watch": "true"})

    # Storages

    def list_storages(self, phase: str | None = None) -> list[StorageView]:
        return list(self._session.pages(STORAGES, said(phase=phase)))

    def get_storage(self, name: str) -> Tagged[StorageView]:
        return self._session.tagged(_storage_path(name))

    def find_storage(self, name: str) -> StorageView | None:
        return _find(lambda: self.get_storage(name).view, "gpustorage_not_found")

    def create_storage(self, request: Json) -> Accepted[StorageView]:
        return self._session.accepted(STORAGES, request)

    def update_storage(self, name: str, change: Json, etag: str | None = None) -> StorageView:
        view: StorageView = self._session.data("PUT", _storage_path(name), body=change, etag=etag)
        return view

    def recover_storage(self, name: str, operation_id: str) -> StorageView:
        body = {"operationID": operation_id}
        view: StorageView = self._session.data("POST", f"{_storage_path(name)}/recover", body=body)
        return view

    def delete_storage(self, name: str) -> None:
        self._session.delete(_storage_path(name))

    def get_storage_stack(self, name: str) -> StackView:
        view: StackView = self._session.data("GET", f"{_storage_path(name)}/stack")
        return view

    def list_storage_events(self, name: str) -> list[EventView]:
        views: list[EventView] = self._session.data("GET", f"{_storage_path(name)}/events")
        return views

    def read_storage_logs(self, name: str, params: Mapping[str, str]) -> Iterator[bytes]:
        return self._read_logs(_storage_path(name), params)

    # Stock, pools and the jobs that make them

    def list_stock(
        self, spec: str | None = None, pool: str | None = None, state: str | None = None
    ) -> list[StockUnitView]:
        params = said(specName=spec, pool=pool, state=state)
        views: list[StockUnitView] = self._session.data("GET", "/operator/stock-units", params=params)
        return views

    def seed_stock(self, request: Json) -> Accepted[JobView]:
        return self._session.accepted("/operator/stock-units", request)

    def delete_stock(self, name: str) -> None:
        self._session.delete(f"/operator/stock-units/{_segment(name)}")

    def list_pools(self) -> list[PoolView]:
        views: list[PoolView] = self._session.data("GET", "/operator/stockpools")
        return views

    def get_pool(self, name: str) -> PoolView:
        view: PoolView = self._session.data("GET", _pool_path(name))
        return view

    def find_pool(self, name: str) -> PoolView | None:
        return _find(lambda: self.get_pool(name), "stockpool_not_found")

    def create_pool(self, request: Json) -> Accepted[JobView]:
        return self._session.accepted("/operator/stockpools", request)

    def update_pool(self, name: str, change: Json) -> PoolView:
        view: PoolView = self._session.data("PUT", _pool_path(name), body=change)
        return view

    def get_pool_stack(self, name: str) -> StackView:
        view: StackView = self._session.data("GET", f"{_pool_path(name)}/stack")
        return view

    def delete_pool(self, name: str) -> None:
        self._session.delete(_pool_path(name))

    def get_drift(self) -> DriftReport:
        report: DriftReport = self._session.data("GET", "/operator/drift")
        return report

    def list_jobs(self) -> list[JobView]:
        views: list[JobView] = self._session.data("GET", "/operator/jobs")
        return views

    def get_job(self, operation_id: str) -> JobView:
        view: JobView = self._session.data("GET", f"/operator/jobs/{_segment(operation_id)}")
        return view

    def find_job(self, operation_id: str) -> JobView | None:
        return _find(lambda: self.get_job(operation_id), "job_not_found")

    # Functions and their calls

    def list_functions(self) -> list[FunctionView]:
        return list(self._session.pages(FUNCTIONS, {}))

    def get_function(self, name: str) -> Tagged[FunctionView]:
        return self._session.tagged(_function_path(name))

    def find_function(self, name: str) -> FunctionView | None:
        return _find(lambda: self.get_function(name).view, "function_not_found")

    def create_function(self, request: Json) -> Accepted[FunctionView]:
        return self._session.accepted(FUNCTIONS, request)

    def update_function(self, name: str, change: Json, etag: str | None = None) -> FunctionView:
        view: FunctionView = self._session.data("PUT", _function_path(name), body=change, etag=etag)
        return view

    def delete_function(self, name: str) -> None:
        self._session.delete(_function_path(name))

    def get_function_health(self, name: str) -> FunctionHealthView:
        view: FunctionHealthView = self._session.data("GET", f"{_function_path(name)}/health")
        return view

    def get_function_stack(self, name: str) -> StackView:
        view: StackView = self._session.data("GET", f"{_function_path(name)}/stack")
        return view

    def read_function_logs(self, name: str, params: Mapping[str, str]) -> Iterator[bytes]:
        return self._read_logs(_function_path(name), params)

    def purge_function(self, name: str) -> int:
        """How many calls were cancelled."""
        return int(self._session.data("DELETE", f"{_function_path(name)}/queue")["cancelled"])

    def invoke(self, request: Json, *, silence_seconds: float) -> Accepted[InvocationView]:
        """The answer to a call that waits for its result may take as long as that is waited for."""
        return self._session.accepted(INVOCATIONS, request, silence_seconds=silence_seconds)

    def get_invocation(self, invocation_id: str) -> InvocationView:
        view: InvocationView = self._session.data("GET", _invocation_path(invocation_id))
        return view

    def list_invocations(
        self, function: str | None = None, state: str | None = None, limit: int | None = None
    ) -> list[InvocationView]:
        """The first so many; all of them without a limit."""
        return list(islice(self._session.pages(INVOCATIONS, said(function=function, state=state)), limit))

    def cancel_invocation(self, invocation_id: str) -> InvocationView:
        view: InvocationView = self._session.data("POST", f"{_invocation_path(invocation_id)}/cancel")
        return view

    def delete_invocation(self, invocation_id: str) -> InvocationView:
        view: InvocationView = self._session.data("DELETE", _invocation_path(invocation_id))
        return view

    def retry_invocation(self, invocation_id: str) -> Accepted[InvocationView]:
        return self._session.accepted(f"{_invocation_path(invocation_id)}/retry", {})

    def watch_invocations(self, function: str | None = None) -> Iterator[ServerEvent]:
        return self._session.watch(INVOCATIONS, said(watch="true", function=function))

    def list_dead_letters(self, function: str | None = None) -> list[InvocationView]:
        return list(self._session.pages(DEAD_LETTERS, said(function=function)))

    def redrive(self, request: Json) -> Json:
        answer: Json = self._session.data("POST", f"{DEAD_LETTERS}/redrive", body=request)
        return answer

    def _read_logs(self, path: str, params: Mapping[str, str]) -> Iterator[bytes]:
        """Pieces of the log as they come."""
        # A program that writes nothing is no broken connection.
        silence = None if "follow" in params else SILENCE_SECONDS
        return self._session.pieces(f"{path}/logs", dict(params), silence_seconds=silence)


def _find(get: Callable[[], View], absence: str) -> View | None:
    """None for what the API says is not there. Any other 404 is about the address, not about the thing."""
    try:
        return get()
    except ApiError as error:
        if error.code != absence:
            raise
        return None


def _segment(name: str) -> str:
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise UnsendableError(f"{name!r} is not Unicode: write it in UTF-8") from None


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
