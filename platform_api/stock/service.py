"""Warm stock: the catalogue of specs, the pools, and the stock units.

Creating a pool and seeding units are jobs. A change of a pool is written as the pool was seen, together with the
accepted spec. Reading costs no request, and a claimed unit is not deleted.
"""

from gpu_platform.api_models.stock import (
    ChangeStockPool,
    JobView,
    PoolView,
    SeedStockUnits,
    SpecView,
    StockState,
    StockUnitView,
)
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of, is_being_deleted, labels_of
from gpu_platform.domain.operations import OPERATORS
from gpu_platform.domain.stacks import as_accepted
from gpu_platform.domain.stock import (
    PoolPhase,
    StockPoolSpec,
    StockPoolStatus,
    claim_holder_of,
    is_available,
    is_claimed,
    seed_pool_name,
)
from gpu_platform.domain.units import GPUUnitSpec, GPUUnitStatus, Phase, accepted_text
from gpu_platform.domain.value import fields_of
from gpu_platform.kube import ConflictError, NotFoundError
from gpu_platform.kube.paths import GPU_UNITS, STOCK_POOLS
from gpu_platform.kube.requests import as_seen, find
from gpu_platform.store.ledger import build_deletion, delete_on_record, open_operation
from platform_api.cluster import Cluster
from platform_api.http.errors import conflict, object_not_found
from platform_api.kube_health import BoundedClient
from platform_api.objects.idempotent_create import Accepted
from platform_api.objects.optimistic_update import TRIES, check_match, refuse_leaving, refuse_owned
from platform_api.objects.reads import view_common
from platform_api.stock.jobs import accept_job


def view_spec(spec: Json) -> SpecView:
    return SpecView.model_validate({**spec["spec"], "name": spec["metadata"]["name"]})


def list_specs(cluster: Cluster) -> tuple[SpecView, ...]:
    return tuple(sorted(map(view_spec, cluster.specs.objects()), key=lambda spec: spec.name))


def get_spec(cluster: Cluster, name: str) -> SpecView:
    spec = cluster.specs.get(None, name)
    if spec is None:
        raise object_not_found("spec", name)
    return view_spec(spec)


def view_pool(pool: Json) -> PoolView:
    spec = StockPoolSpec.model_validate(pool["spec"])
    common = view_common(pool, StockPoolStatus.of(pool), PoolView, PoolPhase.PROGRESSING)
    return PoolView(**(common | fields_of(spec, PoolView)))


async def get_pool(client: BoundedClient, name: str) -> Json:
    pool = await find(client, STOCK_POOLS, name, names.STOCK_NAMESPACE)
    if pool is None:
        raise object_not_found("stock pool", name)
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
            return await client.replace(STOCK_POOLS.item(name, names.STOCK_NAMESPACE), changed)
        except ConflictError:
            continue
        except NotFoundError:
            raise object_not_found("stock pool", name) from None
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


def state_of(stock: Json) -> StockState:
    if is_claimed(stock):
        return StockState.CLAIMED
    return StockState.AVAILABLE if is_available(stock) else StockState.WAITING


def pool_of(stock: Json) -> str | None:
    return labels_of(stock).get(names.LABEL_POOL)


def view_stock_unit(stock: Json) -> StockUnitView:
    spec = GPUUnitSpec.model_validate(stock["spec"])
    common = view_common(stock, GPUUnitStatus.of(stock), StockUnitView, Phase.PENDING)
    return StockUnitView(
        **(common | fields_of(spec, StockUnitView)),
        pool=pool_of(stock),
        state=state_of(stock),
        claimed_by=claim_holder_of(stock),
    )


async def seed(cluster: Cluster, body: SeedStockUnits) -> Accepted[JobView]:
    pool_name = seed_pool_name(body.spec_name, body.operation_id)
    return await accept_job(cluster, body.operation_id, body.to_request(), pool_name)


def list_stock(
    cluster: Cluster, spec_name: str | None, pool: str | None, state: StockState | None
) -> tuple[StockUnitView, ...]:
    """Oldest first: the order in which they are claimed."""
    wanted = [
        view_stock_unit(stock)
        for stock in cluster.units.objects(names.STOCK_NAMESPACE)
        if spec_name in (None, stock["spec"]["specName"])
        and pool in (None, pool_of(stock))
        and state in (None, state_of(stock))
    ]
    return tuple(sorted(wanted, key=lambda view: (view.created_at, view.name)))


async def delete_stock(client: BoundedClient, name: str) -> None:
    """That very unit, as it was seen to be free: a claim that comes in between wins."""
    first = await find(client, GPU_UNITS, name, names.STOCK_NAMESPACE)
    if first is None:
        raise object_not_found("stock unit", name)
    stock = first
    # The reconciler writes the status of a young unit several times.
    for _ in range(TRIES):
        if stock["metadata"]["uid"] != first["metadata"]["uid"] or is_being_deleted(stock):
            # Somebody else deleted it; perhaps its pool has made another one of its name by now.
            return
        if is_claimed(stock):
            raise conflict(f"the stock unit {name!r} is claimed by {claim_holder_of(stock) or 'a tenant'}")
        try:
            await client.delete(
                GPU_UNITS.of(stock), {"preconditions": as_seen(stock), "propagationPolicy": "Background"}
            )
            return
        except NotFoundError:
            return
        except ConflictError:
            found = await find(client, GPU_UNITS, name, names.STOCK_NAMESPACE)
            if found is None:
                return
            stock = found
    raise conflict(f"the stock unit {name!r} is being changed again and again; try again")
