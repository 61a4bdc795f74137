"""Everything that one pass knows about an operation: the values that `plan` decides on, from the informers while there
is nothing to do, else from the API server.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import ValidationError

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import (
    FINAL_PHASES,
    PREVIEW_PATIENCE,
    OperationKind,
    OperationSpec,
    OperationStatus,
    is_made_by,
)
from gpu_platform.domain.stock import Claim, PoolRequest, StockRequest, StockUnitsRequest
from gpu_platform.kube.paths import GPU_SPECS, OPERATIONS, PATH_OF_KIND
from gpu_platform.kube.requests import ObjectClient, find
from gpu_platform.store.ledger import DELETIONS, spec_of, status_of
from gpu_platform.store.unit_acquisition import list_claims
from reconciler.informers import World

JOBS = (OperationKind.SEED_STOCK_UNITS, OperationKind.CREATE_STOCK_POOL)

KIND_OF = {
    OperationKind.CREATE_UNIT: "GPUUnit",
    OperationKind.START_UNIT: "GPUUnit",
    OperationKind.DELETE_UNIT: "GPUUnit",
    OperationKind.PREVIEW_UNIT: "GPUUnit",
    OperationKind.SEED_STOCK_UNITS: "StockPool",
    OperationKind.CREATE_STOCK_POOL: "StockPool",
    OperationKind.DELETE_STOCK_POOL: "StockPool",
    OperationKind.CREATE_FUNCTION: "GPUFunction",
    OperationKind.DELETE_FUNCTION: "GPUFunction",
    OperationKind.CREATE_STORAGE: "GPUStorage",
    OperationKind.RECOVER_STORAGE: "GPUStorage",
    OperationKind.DELETE_STORAGE: "GPUStorage",
}
"""What an operation is about. The kind that its target names is only what its writer says."""

DELETE_GRACE = timedelta(seconds=2)
"""How long the API has to delete the object itself."""


@dataclass(frozen=True)
class Record:
    """An Operation, read."""

    item: Json
    """As it was seen: every write on it is guarded by its uid and resourceVersion."""

    spec: OperationSpec
    status: OperationStatus

    @property
    def name(self) -> str:
        return str(self.item["metadata"]["name"])

    @property
    def claim(self) -> Claim:
        """The claim by which it holds stock."""
        return Claim.of_operation(self.item)

    @property
    def object_kind(self) -> str:
        return KIND_OF[self.spec.kind]

    @property
    def object_uid(self) -> str | None:
        """The very object that it is about, once that is known."""
        return self.status.target_uid or self.spec.target.uid


@dataclass(frozen=True)
class Observed:
    """Of an operation that is not at its end, and due: asked of the API server itself in this pass. A cache may be
    behind, and from what it does not show yet nothing must be made a second time or be given up."""

    record: Record
    object_exists: bool = False
    """Of an operation at its end: whether the object still stands that it is about."""

    found: Json | None = None
    """The object that has the name of its target; of a job, the one that has the name of its pool."""

    claims: tuple[Json, ...] = ()
    """The stock that it holds."""

    catalogue: Json | None = None
    """Of a job: the GPUSpec."""

    refusal: str | None = None
    """In the API server's words: why it will never accept what was tried in this pass."""


def due_at(record: Record, takeover: timedelta) -> datetime:
    """When an operation that is not at its end becomes this controller's business."""
    created_at = datetime.fromisoformat(record.item["metadata"]["creationTimestamp"])
    if record.spec.kind in JOBS:
        return created_at
    if record.spec.kind is OperationKind.PREVIEW_UNIT:
        return created_at + PREVIEW_PATIENCE
    return created_at + (DELETE_GRACE if record.spec.kind in DELETIONS.values() else takeover)


def parse_stock_request(record: Record) -> StockRequest | None:
    form = StockUnitsRequest if record.spec.kind is OperationKind.SEED_STOCK_UNITS else PoolRequest
    return form.parse(record.spec.request)


async def observe_operation(
    world: World, client: ObjectClient, namespace: str, name: str, now: datetime, takeover: timedelta
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


async def _look(client: ObjectClient, record: Record) -> Observed:
    target, kind = record.spec.target, record.spec.kind
    if kind is OperationKind.PREVIEW_UNIT:
        return Observed(record)
    catalogue, claims = None, tuple[Json, ...]()
    if kind in JOBS:
        request = parse_stock_request(record)
        if request is None:
            return Observed(record)
        catalogue = await find(client, GPU_SPECS, request.spec_name)
    if kind in (OperationKind.CREATE_UNIT, OperationKind.START_UNIT):
        # Before the unit: a claim that was consumed since then shows as its unit.
        claims = await list_claims(client, record.claim)
    found = await find(client, PATH_OF_KIND[record.object_kind], target.name, target.namespace)
    return Observed(record, found=found, claims=claims, catalogue=catalogue)


async def _object_exists(world: World, client: ObjectClient, record: Record) -> bool:
    """The cache is believed when it shows the object, and asked about when it does not: it may be behind."""
    target = record.spec.target
    if record.object_uid is None or target.kind not in world.accepted:
        return False
    if _is(world.accepted[target.kind].get(target.namespace, target.name), record):
        return True
    # The cache is enough then: one that is behind costs a look more, long before the end.
    if record.status.expires_at is not None:
        return False
    return _is(await find(client, PATH_OF_KIND[target.kind], target.name, target.namespace), record)


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
