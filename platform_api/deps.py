"""What the endpoints work with: made once per process, handed to `create_app`, and found by the dependencies here."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, TypeVar

from fastapi import Depends, Request
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
from platform_api.objects.tenant_limits import TenantLimitReader
from platform_api.proxy.forwarding import Forwarder
from platform_api.settings import ApiSettings
from platform_api.stacks.drift import DriftTracker
from platform_api.storages.service import StorageService

T = TypeVar("T")


@dataclass(frozen=True)
class Services:
    """What needs Kubernetes."""

    cluster: Cluster
    units: UnitService
    storages: StorageService
    functions: FunctionService
    invocations: InvocationService
    drift: DriftTracker


@dataclass(frozen=True)
class Deps:
    settings: ApiSettings
    services: Services | None
    """None where `kubeMode` is off, or auto and there is none."""

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

    @property
    def cluster(self) -> Cluster | None:
        return self.services.cluster if self.services is not None else None


def deps_of(request: Request) -> Deps:
    deps: Deps = request.app.state.deps
    return deps


async def root_of(request: Request) -> str:
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


def _of_services(choose: Callable[[Services], T]) -> Callable[[Request], Awaitable[T]]:
    """A dependency: a part of the services, or a 503 that says why there are none."""

    async def find(request: Request) -> T:
        services = deps_of(request).services
        if services is None:
            raise unavailable("this API runs without Kubernetes (kubeMode: off): only /api/v1/health answers")
        return choose(services)

    return find


Root = Annotated[str, Depends(root_of)]
KubeCluster = Annotated[Cluster, Depends(_of_services(lambda services: services.cluster))]
Units = Annotated[UnitService, Depends(_of_services(lambda services: services.units))]
Storages = Annotated[StorageService, Depends(_of_services(lambda services: services.storages))]
Functions = Annotated[FunctionService, Depends(_of_services(lambda services: services.functions))]
Invocations = Annotated[InvocationService, Depends(_of_services(lambda services: services.invocations))]
Drift = Annotated[DriftTracker, Depends(_of_services(lambda services: services.drift))]
