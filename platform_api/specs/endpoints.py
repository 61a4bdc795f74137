"""`/api/v1/operator/specs`."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from gpu_platform.api_models.envelope import Envelope
from gpu_platform.api_models.stock import SpecView
from gpu_platform.domain.tenants import Role
from gpu_platform.domain.value import Value
from platform_api.auth.access import Requires
from platform_api.auth.keys import Caller
from platform_api.deps import cluster_of
from platform_api.http.bodies import answer
from platform_api.listed import require_listed
from platform_api.stock import service

BODIES: tuple[type[Value], ...] = ()

router = APIRouter(prefix="/api/v1/operator/specs", tags=["specs"])


@router.get("", response_model=Envelope[tuple[SpecView, ...]])
async def list_specs(_: Annotated[Caller, Depends(Requires(Role.VIEWER, Role.OPERATOR))], request: Request) -> Response:
    """The catalogue, by name."""
    cluster = cluster_of(request)
    require_listed(cluster.specs)
    return answer(service.list_specs(cluster))


@router.get("/{name}", response_model=Envelope[SpecView])
async def get_spec(
    _: Annotated[Caller, Depends(Requires(Role.VIEWER, Role.OPERATOR))], request: Request, name: str
) -> Response:
    """One entry of the catalogue."""
    cluster = cluster_of(request)
    require_listed(cluster.specs)
    return answer(service.get_spec(cluster, name))
