"""Everything that matters for one operation: from the caches while there is nothing to do, else from the API server."""

from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from gpu_platform.domain.operations import FINAL_PHASES, OperationKind, is_made_by
from gpu_platform.kube import ResourcePath
from gpu_platform.kube.informer import ObjectCache
from gpu_platform.kube.paths import GPU_FUNCTIONS, GPU_SPECS, GPU_STORAGES, GPU_UNITS, OPERATIONS, STOCK_POOLS
from gpu_platform.kube.requests import find
from gpu_platform.store.claims import list_claims
from gpu_platform.store.ledger import spec_of, status_of
from gpu_platform.store.unit_writes import UnitClient, find_unit
from reconciler.informers import World
from reconciler.operations.observed import JOBS, OF_FUNCTIONS, OF_STORAGES, Observed, Record
from reconciler.operations.plan import due_at, parse_stock_request

Json = dict[str, Any]


async def observe_operation(
    world: World, client: UnitClient, namespace: str, name: str, now: datetime, takeover: timedelta
) -> Observed | None:
    """None when there is no such operation, or a newer version wrote it."""
    record = _read(world.operations.get(namespace, name))
    if record is None:
        return None
    if record.status.phase not in FINAL_PHASES:
        if due_at(record, takeover) > now:
            return Observed(record)
        record = _read(await find(client, OPERATIONS, name, namespace))
        if record is None:
            return None
    if record.status.phase in FINAL_PHASES:
        return Observed(record, object_exists=await _object_exists(world, client, record))
    return await _look(client, record)


async def _look(client: UnitClient, record: Record) -> Observed:
    target = record.spec.target
    if record.spec.kind is OperationKind.PREVIEW_UNIT:
        return Observed(record)
    if record.spec.kind in JOBS:
        request = parse_stock_request(record)
        if request is None:
            return Observed(record)
        return Observed(
            record,
            catalogue=await find(client, GPU_SPECS, request.spec_name),
            pool=await find(client, STOCK_POOLS, target.name, target.namespace),
        )
    if record.spec.kind is OperationKind.DELETE_STOCK_POOL:
        return Observed(record, pool=await find(client, STOCK_POOLS, target.name, target.namespace))
    if record.spec.kind in OF_FUNCTIONS:
        return Observed(record, function=await find(client, GPU_FUNCTIONS, target.name, target.namespace))
    if record.spec.kind in OF_STORAGES:
        return Observed(record, storage=await find(client, GPU_STORAGES, target.name, target.namespace))
    # The claims first: one that was consumed since then shows as its unit, which is looked for after it.
    claims = () if record.spec.kind is OperationKind.DELETE_UNIT else await list_claims(client, record.claim)
    return Observed(record, unit=await find_unit(client, target.namespace, target.name), claims=claims)


async def _object_exists(world: World, client: UnitClient, record: Record) -> bool:
    """The cache is believed when it shows the object, and asked about when it does not: it may be behind."""
    target = record.spec.target
    kinds: dict[str, tuple[ResourcePath, ObjectCache]] = {
        "GPUUnit": (GPU_UNITS, world.units),
        "GPUStorage": (GPU_STORAGES, world.storages),
        "GPUFunction": (GPU_FUNCTIONS, world.functions),
        "StockPool": (STOCK_POOLS, world.pools),
    }
    if record.object_uid is None or target.kind not in kinds:
        return False
    path, cache = kinds[target.kind]
    if _is(cache.get(target.namespace, target.name), record):
        return True
    # The cache is enough then: one that is behind costs a look more, long before the end.
    if record.status.expires_at is not None:
        return False
    return _is(await find(client, path, target.name, target.namespace), record)


def _is(item: Json | None, record: Record) -> bool:
    """That very object, or one that was made again from its stack, with the same marks."""
    if item is None:
        return False
    return item["metadata"]["uid"] == record.object_uid or is_made_by(item, record.spec)


def _read(item: Json | None) -> Record | None:
    try:
        return Record(item, spec_of(item), status_of(item)) if item is not None else None
    except ValidationError:
        return None
