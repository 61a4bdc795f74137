"""What the endpoints work with; made once per process, handed to `create_app`."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from fastapi import Request
from fastapi.responses import Response

from platform_api.auth.keys import Caller, KeyRing
from platform_api.auth.rate_limit import FailedLogins, RateLimit, WriteLimit
from platform_api.cluster import Cluster
from platform_api.functions.service import FunctionService
from platform_api.gpu_units.service import UnitService
from platform_api.health.gpu_readings import GpuReader
from platform_api.http.errors import unavailable
from platform_api.http.streams import Streams
from platform_api.invocations.service import InvocationService
from platform_api.metrics import ApiMetrics
from platform_api.nats_connection import QueueLink
from platform_api.objects.limits import TenantLimitReader
from platform_api.proxy.forwarding import Forwarder
from platform_api.settings import ApiSettings
from platform_api.stacks.drift import DriftTracker
from platform_api.storages.service import StorageService

T = TypeVar("T")


@dataclass(frozen=True)
class Deps:
    settings: ApiSettings
    cluster: Cluster | None
    """None where `kubeMode` is off, or auto and there is none."""

    units: UnitService | None
    storages: StorageService | None
    functions: FunctionService | None
    invocations: InvocationService | None
    drift: DriftTracker | None
    """All there where the cluster is."""

    queue: QueueLink
    gpus: GpuReader
    key_ring: KeyRing
    limits: TenantLimitReader
    rate_limit: RateLimit
    write_limit: WriteLimit
    failed_logins: FailedLogins
    streams: Streams
    forwarder: Forwarder
    metrics: ApiMetrics
    now: Callable[[], datetime]
    started_at: datetime


def deps_of(request: Request) -> Deps:
    deps: Deps = request.app.state.deps
    return deps


def root_of(request: Request) -> str:
    """Where the caller reaches this API: what links in an answer begin with."""
    return (deps_of(request).settings.public_url or str(request.base_url)).rstrip("/")


async def stream(
    request: Request,
    caller: Caller,
    parts: AsyncGenerator[bytes, None],
    media_type: str,
    *,
    has_opening: bool = False,
) -> Response:
    """As it comes, for as long as the caller's key is good; `has_opening` as in `Streams.respond`."""
    deps = deps_of(request)
    return await deps.streams.respond(
        parts, media_type, caller.tenant, lambda: deps.key_ring.knows(caller), has_opening=has_opening
    )


def cluster_of(request: Request) -> Cluster:
    """The cluster, or a 503 that says why there is none."""
    return _present(deps_of(request).cluster)


async def units_of(request: Request) -> UnitService:
    return _present(deps_of(request).units)


async def storages_of(request: Request) -> StorageService:
    return _present(deps_of(request).storages)


async def functions_of(request: Request) -> FunctionService:
    return _present(deps_of(request).functions)


async def invocations_of(request: Request) -> InvocationService:
    return _present(deps_of(request).invocations)


def drift_of(request: Request) -> DriftTracker:
    return _present(deps_of(request).drift)


def _present(part: T | None) -> T:
    if part is None:
        raise unavailable("this API runs without Kubernetes (kubeMode: off): only /api/v1/health answers")
    return part
