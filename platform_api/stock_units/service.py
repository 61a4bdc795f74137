"""Stock units: seeding is a job, looking costs no request, and what is claimed is not taken away."""

from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.pool_requests import seed_pool_name
from gpu_platform.domain.stock import claim_holder_of, is_claimed
from gpu_platform.kube import ConflictError, NotFoundError
from gpu_platform.kube.paths import GPU_UNITS
from gpu_platform.kube.requests import as_seen, find
from platform_api.bounded_client import BoundedClient
from platform_api.cluster import Cluster
from platform_api.http.errors import ApiError, conflict, not_found
from platform_api.stock.jobs import AcceptedJob, accept_job
from platform_api.stock_units.schemas import SeedStockUnits, StockState, StockUnitView, pool_of, state_of, view_of

Json = dict[str, Any]

TRIES = 5
"""Of a delete that meets a change: the reconciler writes the status of a young unit several times."""


async def seed(cluster: Cluster, body: SeedStockUnits) -> AcceptedJob:
    pool_name = seed_pool_name(body.spec_name, body.operation_id)
    return await accept_job(cluster, body.operation_id, body.to_request(), pool_name)


def list_stock(
    cluster: Cluster, spec_name: str | None, pool: str | None, state: StockState | None
) -> tuple[StockUnitView, ...]:
    """Oldest first: the order in which they are claimed."""
    wanted = [
        view_of(stock)
        for stock in cluster.units.objects(names.STOCK_NAMESPACE)
        if spec_name in (None, stock["spec"]["specName"])
        and pool in (None, pool_of(stock))
        and state in (None, state_of(stock))
    ]
    return tuple(sorted(wanted, key=lambda view: (view.created_at, view.name)))


async def delete_stock(client: BoundedClient, name: str) -> None:
    """That very unit, as it was seen to be free: a claim that comes in between wins."""
    first = stock = await _get_stock(client, name)
    for _ in range(TRIES):
        if stock["metadata"]["uid"] != first["metadata"]["uid"] or "deletionTimestamp" in stock["metadata"]:
            # Somebody else deleted it; perhaps its pool has made another one of its name by now.
            return
        if is_claimed(stock):
            raise conflict(f"the stock unit {name!r} is claimed by {claim_holder_of(stock) or 'a tenant'}")
        try:
            await client.delete(_path(name), {"preconditions": as_seen(stock), "propagationPolicy": "Background"})
        except NotFoundError:
            return
        except ConflictError:
            try:
                stock = await client.get(_path(name))
            except NotFoundError:
                return
        else:
            return
    raise conflict(f"the stock unit {name!r} is being changed again and again; try again")


async def _get_stock(client: BoundedClient, name: str) -> Json:
    stock = await find(client, GPU_UNITS, name, names.STOCK_NAMESPACE)
    if stock is None:
        raise _unknown(name)
    return stock


def _unknown(name: str) -> ApiError:
    return not_found("stockunit_not_found", f"there is no stock unit {name!r}")


def _path(name: str) -> str:
    return GPU_UNITS.item(name, names.STOCK_NAMESPACE)
