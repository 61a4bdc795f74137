"""`/api/v1/operator/{stockpools,stock-units,jobs,specs}`."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query

from gpu_platform.api_models.envelope import Envelope
from gpu_platform.api_models.stacks import StackView
from gpu_platform.api_models.stock import (
    ChangeStockPool,
    CreateStockPool,
    JobView,
    PoolView,
    SeedStockUnits,
    SpecView,
    StockState,
    StockUnitView,
)
from gpu_platform.domain.tenants import Role
from platform_api.auth.access import Operator, Requires
from platform_api.auth.keys import Caller
from platform_api.deps import KubeCluster
from platform_api.http.routes import Answer, Route
from platform_api.objects.idempotent_create import Accepted
from platform_api.objects.service import answer_object
from platform_api.stacks.service import get_stack
from platform_api.stock import jobs, service

router = APIRouter(prefix="/api/v1/operator", route_class=Route)

ACCEPTED_BEFORE: dict[int | str, dict[str, Any]] = {200: {"description": "It was accepted before"}}
CatalogueReader = Annotated[Caller, Depends(Requires(Role.VIEWER, Role.OPERATOR))]


@router.post("/stockpools", tags=["stock"], status_code=202, responses=ACCEPTED_BEFORE)
async def create_stock_pool(_: Operator, body: CreateStockPool, cluster: KubeCluster) -> Answer[Envelope[JobView]]:
    """Keep a pool of warm stock. The answer is a job."""
    request = body.to_request()
    return _accepted(await jobs.accept_job(cluster, body.operation_id, request, request.name))


@router.get("/stockpools", tags=["stock"])
async def list_stock_pools(_: Operator, cluster: KubeCluster) -> Envelope[tuple[PoolView, ...]]:
    """The pools, by name."""
    return Envelope(data=tuple(map(service.view_pool, await service.list_pools(cluster.client))))


@router.get("/stockpools/{name}", tags=["stock"])
async def get_stock_pool(_: Operator, cluster: KubeCluster, name: str) -> Answer[Envelope[PoolView]]:
    """One pool, with its ETag."""
    pool = await service.get_pool(cluster.client, name)
    return answer_object(pool, service.view_pool(pool))


@router.put("/stockpools/{name}", tags=["stock"])
async def update_stock_pool(
    _: Operator,
    body: ChangeStockPool,
    cluster: KubeCluster,
    name: str,
    if_match: Annotated[str | None, Header(description="The ETag of what is to be changed.")] = None,
) -> Answer[Envelope[PoolView]]:
    """Change what is said; with If-Match, only while it is as it was seen."""
    pool = await service.change_pool(cluster.client, name, body, if_match)
    return answer_object(pool, service.view_pool(pool))


@router.delete("/stockpools/{name}", tags=["stock"], status_code=204)
async def delete_stock_pool(_: Operator, cluster: KubeCluster, name: str) -> None:
    """Take the pool away, and its stock with it."""
    await service.delete_pool(cluster.client, name)


@router.get("/stockpools/{name}/stack", tags=["stacks"])
async def get_stock_pool_stack(_: Operator, cluster: KubeCluster, name: str) -> Envelope[StackView]:
    """What Pulumi has recorded of a pool."""
    pool = await service.get_pool(cluster.client, name)
    return Envelope(data=await get_stack(cluster.client, pool, "stock pool"))


@router.post("/stock-units", tags=["stock"], status_code=202, responses=ACCEPTED_BEFORE)
async def seed_stock_units(_: Operator, body: SeedStockUnits, cluster: KubeCluster) -> Answer[Envelope[JobView]]:
    """Make so many stock units, once. The answer is a job."""
    return _accepted(await service.seed(cluster, body))


@router.get("/stock-units", tags=["stock"])
async def list_stock_units(
    _: Operator,
    cluster: KubeCluster,
    spec_name: Annotated[str | None, Query(alias="specName")] = None,
    pool: str | None = None,
    state: StockState | None = None,
) -> Envelope[tuple[StockUnitView, ...]]:
    """The stock, in the order in which it is claimed."""
    cluster.require_listed(cluster.units)
    return Envelope(data=service.list_stock(cluster, spec_name, pool, state))


@router.delete("/stock-units/{name}", tags=["stock"], status_code=204)
async def delete_stock_unit(_: Operator, cluster: KubeCluster, name: str) -> None:
    """Take a free stock unit away. Its pool makes another one, if it replenishes."""
    await service.delete_stock(cluster.client, name)


@router.get("/jobs", tags=["jobs"])
async def list_jobs(_: Operator, cluster: KubeCluster) -> Envelope[tuple[JobView, ...]]:
    """The jobs, newest first."""
    return Envelope(data=await jobs.list_jobs(cluster.client))


# An operationID may have slashes.
@router.get("/jobs/{operationID:path}", tags=["jobs"])
async def get_job(
    _: Operator, cluster: KubeCluster, operation_id: Annotated[str, Path(alias="operationID")]
) -> Envelope[JobView]:
    """One job, by the operationID that it was asked for with."""
    return Envelope(data=await jobs.get_job(cluster.client, operation_id))


@router.get("/specs", tags=["specs"])
async def list_specs(_: CatalogueReader, cluster: KubeCluster) -> Envelope[tuple[SpecView, ...]]:
    """The catalogue, by name."""
    cluster.require_listed(cluster.specs)
    return Envelope(data=service.list_specs(cluster))


@router.get("/specs/{name}", tags=["specs"])
async def get_spec(_: CatalogueReader, cluster: KubeCluster, name: str) -> Envelope[SpecView]:
    """One entry of the catalogue."""
    cluster.require_listed(cluster.specs)
    return Envelope(data=service.get_spec(cluster, name))


def _accepted(accepted: Accepted[JobView]) -> Answer[Envelope[JobView]]:
    return Answer(Envelope(data=accepted.item), 202 if accepted.is_new else 200)
