"""`/api/v1/operator/stock-units`."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from gpu_platform.api_models.envelope import Envelope
from gpu_platform.api_models.stock import JobView, SeedStockUnits, StockState, StockUnitView
from gpu_platform.domain.value import Value
from platform_api.auth.access import Operator
from platform_api.deps import cluster_of
from platform_api.http.bodies import answer, body_of, decoded
from platform_api.listed import require_listed
from platform_api.stock import service

BODIES: tuple[type[Value], ...] = (SeedStockUnits,)

router = APIRouter(prefix="/api/v1/operator/stock-units", tags=["stock"])


@router.post(
    "",
    status_code=202,
    response_model=Envelope[JobView],
    responses={200: {"model": Envelope[JobView], "description": "It was accepted before"}},
    openapi_extra=body_of(SeedStockUnits),
)
async def seed_stock_units(
    _: Operator,
    request: Request,
    body: Annotated[SeedStockUnits, Depends(decoded(SeedStockUnits))],
) -> Response:
    """Make so many stock units, once. The answer is a job."""
    accepted = await service.seed(cluster_of(request), body)
    return answer(accepted.job, 202 if accepted.is_new else 200)


@router.get("", response_model=Envelope[tuple[StockUnitView, ...]])
async def list_stock_units(
    _: Operator,
    request: Request,
    spec_name: Annotated[str | None, Query(alias="specName")] = None,
    pool: str | None = None,
    state: StockState | None = None,
) -> Response:
    """The stock, in the order in which it is claimed."""
    cluster = cluster_of(request)
    require_listed(cluster.units)
    return answer(service.list_stock(cluster, spec_name, pool, state))


@router.delete("/{name}", status_code=204)
async def delete_stock_unit(_: Operator, request: Request, name: str) -> Response:
    """Take a free stock unit away. Its pool makes another one, if it replenishes."""
    await service.delete_stock(cluster_of(request).client, name)
    return Response(status_code=204)
