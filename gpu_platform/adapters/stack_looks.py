"""The records of one object, asked of the API server: its custom resource, and what the ledger says of it."""

from typing import Any

from gpu_platform.domain.operations import OperationKind, OperationPhase, delete_operation_name, operation_name
from gpu_platform.domain.stack_plan import Records
from gpu_platform.domain.stack_records import StackRecord
from gpu_platform.domain.stacks import StackAddress, StackKind
from gpu_platform.kube import ResourcePath
from gpu_platform.kube.paths import GPU_FUNCTIONS, GPU_STORAGES, GPU_UNITS, OPERATIONS, STOCK_POOLS
from gpu_platform.kube.requests import Getter, find

Json = dict[str, Any]

CREATIONS = (
    OperationKind.CREATE_UNIT,
    OperationKind.CREATE_STORAGE,
    OperationKind.CREATE_FUNCTION,
    OperationKind.CREATE_STOCK_POOL,
    OperationKind.SEED_STOCK_UNITS,
)
PATHS: dict[StackKind, ResourcePath] = {
    StackKind.GPU_UNIT: GPU_UNITS,
    StackKind.GPU_STORAGE: GPU_STORAGES,
    StackKind.GPU_FUNCTION: GPU_FUNCTIONS,
    StackKind.STOCK_POOL: STOCK_POOLS,
}


async def look(client: Getter, address: StackAddress, stack: StackRecord) -> Records:
    """A cache that is behind must not cost anybody a unit."""
    item = await find(client, PATHS[address.kind], address.name, address.namespace)
    deletion = await find(client, OPERATIONS, deletion_name(address, item, stack), address.namespace)
    creation = await find(client, OPERATIONS, creation_name(address, stack), address.namespace)
    return build_records(item, stack, deletion, creation)


def build_records(
    item: Json | None, stack: StackRecord | None, deletion: Json | None, creation: Json | None
) -> Records:
    return Records(
        item=item,
        stack=stack,
        is_delete_asked=deletion is not None,
        is_accepted=creation is not None and _is_accepted(creation),
    )


def deletion_name(address: StackAddress, item: Json | None, stack: StackRecord | None) -> str:
    """The operation that asks for the end of the very object that the stack, or else the custom resource, is about."""
    uid = stack.uid if stack is not None else item["metadata"]["uid"] if item is not None else ""
    return delete_operation_name(address.ledger_tenant, uid)


def creation_name(address: StackAddress, stack: StackRecord | None) -> str:
    operation_id = stack.recorded.operation_id if stack is not None and stack.recorded is not None else ""
    return operation_name(address.ledger_tenant, operation_id)


def _is_accepted(operation: Json) -> bool:
    """Previews share the names of operations, and prove nothing."""
    is_creation = operation["spec"]["kind"] in CREATIONS
    return is_creation and operation.get("status", {}).get("phase") == OperationPhase.SUCCEEDED
