"""`/api/v1/operator/drift`."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from gpu_platform.api_models.envelope import Envelope
from gpu_platform.api_models.stacks import DriftReport
from gpu_platform.domain.value import Value
from platform_api.auth.access import Operator
from platform_api.deps import cluster_of, drift_of
from platform_api.http.bodies import answer
from platform_api.listed import require_listed
from platform_api.stacks.drift import build_report

BODIES: tuple[type[Value], ...] = ()

router = APIRouter(prefix="/api/v1/operator/drift", tags=["drift"])

DEFAULT_LIMIT = 100
LONGEST = 500


@router.get("", response_model=Envelope[DriftReport])
async def read_drift(
    _: Operator,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=LONGEST)] = DEFAULT_LIMIT,
) -> Response:
    """Objects that are not as their records say, since when, and what is being done about it."""
    cluster = cluster_of(request)
    require_listed(cluster.units, cluster.pools, cluster.stacks)
    return answer(await build_report(cluster.client, drift_of(request), limit))
