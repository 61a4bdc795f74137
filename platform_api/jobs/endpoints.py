"""`/api/v1/operator/jobs`."""

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from gpu_platform.api_models.envelope import Envelope
from gpu_platform.api_models.stock import JobView
from gpu_platform.domain.value import Value
from platform_api.auth.access import Operator
from platform_api.deps import cluster_of
from platform_api.http.bodies import answer
from platform_api.stock import jobs as service

BODIES: tuple[type[Value], ...] = ()

router = APIRouter(prefix="/api/v1/operator/jobs", tags=["jobs"])


@router.get("", response_model=Envelope[tuple[JobView, ...]])
async def list_jobs(_: Operator, request: Request) -> Response:
    """The jobs, newest first."""
    return answer(await service.list_jobs(cluster_of(request).client))


# An operationID may have slashes.
@router.get("/{operationID:path}", response_model=Envelope[JobView])
async def get_job(
    _: Operator,
    request: Request,
    operation_id: Annotated[str, Path(alias="operationID")],
) -> Response:
    """One job, by the operationID that it was asked for with."""
    return answer(await service.get_job(cluster_of(request).client, operation_id))
