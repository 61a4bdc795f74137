"""The ledger's entry for an object that a restore made: with it a replay of the request finds the object, and the stack
worker puts the object back when somebody deletes it."""

from datetime import datetime

from gpu_platform.domain.operations import (
    OperationKind,
    OperationPhase,
    OperationSpec,
    OperationTarget,
    operation_name,
)
from gpu_platform.domain.pool_requests import PoolRequest, StockRequest, StockUnitsRequest, seed_pool_name
from gpu_platform.domain.stacks import OBJECT_KINDS, Intent, StackKind
from gpu_platform.domain.stock_pools import StockPoolSpec
from gpu_platform.kube.errors import ConflictError, NotFoundError
from gpu_platform.store.ledger import LedgerClient, build_operation, finish_operation, open_operation

KINDS = {kind: name for name, kind in OBJECT_KINDS.items()}


async def record_creation(client: LedgerClient, intent: Intent, now: datetime) -> None:
    """Unless there is one. What another request has under the name is left as it is."""
    if not (intent.operation_id and intent.request_hash):
        return
    name = operation_name(intent.address.ledger_tenant, intent.operation_id)
    opened = await open_operation(client, build_operation(name, intent.address.namespace, build_creation(intent)))
    if not opened.is_new:
        return
    try:
        await finish_operation(client, opened.operation, OperationPhase.SUCCEEDED, now, target_uid=intent.uid)
    except (ConflictError, NotFoundError):
        # The operations controller was faster, and marks the same object.
        return


def build_creation(intent: Intent) -> OperationSpec:
    """The hash is the request's own, so that the same request is known again. The request itself is lost; what a pool
    has in its place is enough for the operations controller to end what this process leaves half done."""
    kind, request = _build_request(intent)
    return OperationSpec(
        operation_id=intent.operation_id,
        kind=kind,
        request_hash=intent.request_hash,
        request=request.to_json() if request is not None else {},
        target=OperationTarget(
            kind=KINDS[intent.address.kind], namespace=intent.address.namespace, name=intent.address.name
        ),
    )


def _build_request(intent: Intent) -> tuple[OperationKind, StockRequest | None]:
    match intent.address.kind:
        case StackKind.GPU_UNIT:
            return OperationKind.CREATE_UNIT, None
        case StackKind.GPU_STORAGE:
            return OperationKind.CREATE_STORAGE, None
        case StackKind.GPU_FUNCTION:
            return OperationKind.CREATE_FUNCTION, None
        case StackKind.STOCK_POOL:
            request = _build_pool_request(intent)
            is_seed = isinstance(request, StockUnitsRequest)
            return OperationKind.SEED_STOCK_UNITS if is_seed else OperationKind.CREATE_STOCK_POOL, request


def _build_pool_request(intent: Intent) -> StockRequest:
    spec = StockPoolSpec.model_validate(intent.spec)
    if intent.address.name == seed_pool_name(spec.spec_name, intent.operation_id):
        return StockUnitsRequest(spec_name=spec.spec_name, replicas=max(spec.replicas, 1))
    return PoolRequest(
        name=intent.address.name,
        spec_name=spec.spec_name,
        image=spec.image,
        replicas=spec.replicas,
        replenish=spec.replenish,
    )
