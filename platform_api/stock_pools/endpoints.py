"""`/api/v1/operator/stockpools`."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import Response

from gpu_platform.api_models.envelope import Envelope
from gpu_platform.api_models.stock import ChangeStockPool, CreateStockPool, JobView, PoolView
from gpu_platform.domain.value import Value
from platform_api.auth.access import Operator
from platform_api.deps import cluster_of
from platform_api.http.bodies import answer, body_of, decoded, etag_of
from platform_api.stock import service
from platform_api.stock.service import view_pool

BODIES: tuple[type[Value], ...] = (CreateStockPool, ChangeStockPool)

router = APIRouter(prefix="/api/v1/operator/stockpools", tags=["stock"])


@router.post(
    "",
    status_code=202,
    response_model=Envelope[JobView],
    responses={200: {"model": Envelope[JobView], "description": "It was accepted before"}},
    openapi_extra=body_of(CreateStockPool),
)
async def create_stock_pool(
    _: Operator,
    request: Request,
    body: Annotated[CreateStockPool, Depends(decoded(CreateStockPool))],
) -> Response:
    """Keep a pool of warm stock. The answer is a job."""
    accepted = await service.create_pool(cluster_of(request), body)
    return answer(accepted.job, 202 if accepted.is_new else 200)


@router.get("", response_model=Envelope[tuple[PoolView, ...]])
async def list_stock_pools(_: Operator, request: Request) -> Response:
    """The pools, by name."""
    return answer([view_pool(pool) for pool in await service.list_pools(cluster_of(request).client)])


@router.get("/{name}", response_model=Envelope[PoolView])
async def get_stock_pool(_: Operator, request: Request, name: str) -> Response:
    """One pool, with its ETag."""
    return _shown(await service.get_pool(cluster_of(request).client, name))


@router.put("/{name}", response_model=Envelope[PoolView], openapi_extra=body_of(ChangeStockPool))
async def change_stock_pool(
    _: Operator,
    request: Request,
    name: str,
    body: Annotated[ChangeStockPool, Depends(decoded(ChangeStockPool))],
    if_match: Annotated[str | None, Header(description="The ETag of what is to be changed.")] = None,
) -> Response:
    """Change what is said; with If-Match, only while it is as it was seen."""
    return _shown(await service.change_pool(cluster_of(request).client, name, body, if_match))


@router.delete("/{name}", status_code=204)
async def delete_stock_pool(_: Operator, request: Request, name: str) -> Response:
    """Take the pool away, and its stock with it."""
    await service.delete_pool(cluster_of(request).client, name)
    return Response(status_code=204)


def _shown(pool: dict[str, Any]) -> Response:
    return answer(view_pool(pool), headers={"ETag": etag_of(pool)})
