"""Stock pools: creating is a job; a change is written as the pool was seen, together with the accepted spec."""

from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.operations import OPERATORS
from gpu_platform.domain.stacks import as_accepted
from gpu_platform.domain.stock_pools import StockPoolSpec
from gpu_platform.domain.units import accepted_text
from gpu_platform.kube import ConflictError, NotFoundError
from gpu_platform.kube.paths import STOCK_POOLS
from gpu_platform.kube.requests import find
from gpu_platform.store.ledger import build_deletion, delete_on_record, open_operation
from platform_api.bounded_client import BoundedClient
from platform_api.cluster import Cluster
from platform_api.http.errors import ApiError, conflict, not_found
from platform_api.objects.optimistic_update import TRIES, check_match, refuse_leaving
from platform_api.ownership import refuse_owned
from platform_api.stock.jobs import AcceptedJob, accept_job
from platform_api.stock_pools.schemas import ChangeStockPool, CreateStockPool

Json = dict[str, Any]


async def create_pool(cluster: Cluster, body: CreateStockPool) -> AcceptedJob:
    request = body.to_request()
    return await accept_job(cluster, body.operation_id, request, request.name)


async def get_pool(client: BoundedClient, name: str) -> Json:
    pool = await find(client, STOCK_POOLS, name, names.STOCK_NAMESPACE)
    if pool is None:
        raise _unknown(name)
    return pool


async def list_pools(client: BoundedClient) -> tuple[Json, ...]:
    answer = await client.get(STOCK_POOLS.collection(names.STOCK_NAMESPACE))
    return tuple(answer["items"])


async def change_pool(client: BoundedClient, name: str, change: ChangeStockPool, if_match: str | None) -> Json:
    """The pool after the change. A write of its status in between is no reason to refuse."""
    for _ in range(TRIES):
        pool = await get_pool(client, name)
        refuse_owned(pool, "stock pool")
        refuse_leaving(pool, "stock pool")
        check_match(pool, "stock pool", if_match)
        changed = build_changed(pool, change)
        if changed is None:
            return pool
        try:
            return await client.replace(_path(name), changed)
        except ConflictError:
            continue
        except NotFoundError:
            raise _unknown(name) from None
    raise conflict(f"the stock pool {name!r} is being changed again and again; try again")


async def delete_pool(client: BoundedClient, name: str) -> None:
    """That very pool; the wish is recorded first. It stays, on its way out, until its stock is gone."""

    async def record(pool: Json) -> None:
        refuse_owned(pool, "stock pool")
        await open_operation(client, build_deletion(pool, OPERATORS))

    await delete_on_record(client, STOCK_POOLS, await get_pool(client, name), record)


def build_changed(pool: Json, change: ChangeStockPool) -> Json | None:
    """
    | pool                                      | change says | result                            |
    | ----------------------------------------- | ----------- | --------------------------------- |
    | any                                       | a new value | spec and accepted spec, in one    |
    | any                                       | nothing new | None: nothing to write            |

    New is what was not accepted before: an edit by other means is not made a part of it, but put back.
    """
    said = {field: value for field, value in change if value is not None}
    spec = as_accepted(pool)["spec"]
    before = StockPoolSpec.model_validate(spec)
    after = before.model_copy(update=said)
    if after == before:
        return None
    annotations = {**annotations_of(pool), names.ANNOTATION_ACCEPTED_SPEC: accepted_text(after)}
    metadata = {**pool["metadata"], "annotations": annotations}
    return {**pool, "metadata": metadata, "spec": {**spec, **after.to_json()}}


def _unknown(name: str) -> ApiError:
    return not_found("stockpool_not_found", f"there is no stock pool {name!r}")


def _path(name: str) -> str:
    return STOCK_POOLS.item(name, names.STOCK_NAMESPACE)
