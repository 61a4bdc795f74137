"""What the worker knows of one stack: from its caches on most passes, from the API server before a stack goes."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from gpu_platform.adapters.kube import KubeClient, ResourcePath
from gpu_platform.adapters.kube.cache import ObjectCache
from gpu_platform.adapters.kube.paths import GPU_UNITS, LEASES, OPERATIONS, STOCK_POOLS
from gpu_platform.adapters.kube.requests import Getter, find
from gpu_platform.control.loop import Key
from gpu_platform.domain.names import SYSTEM_NAMESPACE
from gpu_platform.domain.operations import OperationKind, OperationPhase, delete_operation_name, operation_name
from gpu_platform.domain.stack_plan import Records
from gpu_platform.domain.stack_records import LABEL_KIND, StackRecord, parse_record
from gpu_platform.domain.stacks import StackAddress, StackKind, address_of, parse_address

Json = dict[str, Any]

CREATIONS = (OperationKind.CREATE_UNIT, OperationKind.CREATE_STOCK_POOL, OperationKind.SEED_STOCK_UNITS)
PATHS: dict[StackKind, ResourcePath] = {StackKind.GPU_UNIT: GPU_UNITS, StackKind.STOCK_POOL: STOCK_POOLS}


class StackWorld:
    def __init__(self, client: KubeClient, resync: timedelta) -> None:
        self.units = ObjectCache(client, GPU_UNITS, resync=resync)
        self.pools = ObjectCache(client, STOCK_POOLS, resync=resync)
        self.operations = ObjectCache(client, OPERATIONS, resync=resync)
        # Of one namespace: the worker may see no other Leases.
        self.leases = ObjectCache(client, LEASES, namespace=SYSTEM_NAMESPACE, label_selector=LABEL_KIND, resync=resync)

    @property
    def caches(self) -> tuple[ObjectCache, ...]:
        return (self.units, self.pools, self.operations, self.leases)

    def find_lease(self, address: StackAddress) -> Json | None:
        return self.leases.get(SYSTEM_NAMESPACE, address.lease)

    def observe(self, address: StackAddress) -> Records:
        cache = self.units if address.kind is StackKind.GPU_UNIT else self.pools
        lease = self.find_lease(address)
        item = cache.get(address.namespace, address.name)
        stack = parse_record(lease) if lease is not None else None
        return _records(
            item,
            stack,
            self.operations.get(address.namespace, _deletion_name(address, item, stack)),
            self.operations.get(address.namespace, _creation_name(address, stack)),
        )


async def look(client: Getter, address: StackAddress, stack: StackRecord) -> Records:
    """As `observe`, asked of the API server: a cache that is behind must not cost anybody a unit."""
    item = await find(client, PATHS[address.kind], address.name, address.namespace)
    deletion = await find(client, OPERATIONS, _deletion_name(address, item, stack), address.namespace)
    creation = await find(client, OPERATIONS, _creation_name(address, stack), address.namespace)
    return _records(item, stack, deletion, creation)


def keys_of_object(item: Json) -> Iterable[Key]:
    address = address_of(item)
    return [key_of(address)] if address is not None else []


def keys_of_lease(lease: Json) -> Iterable[Key]:
    record = parse_record(lease)
    return [key_of(record.address)] if record is not None else []


def keys_of_operation(operation: Json) -> Iterable[Key]:
    """An operation says its target's kind, and so which stack it concerns."""
    target = operation["spec"]["target"]
    return keys_of_object({"kind": target["kind"], "metadata": target})


def key_of(address: StackAddress) -> Key:
    return address.project, address.stack


def address_of_key(project: str, stack: str) -> StackAddress:
    address = parse_address(project, stack)
    if address is None:
        raise ValueError(f"{project}/{stack} is no stack of ours")
    return address


def _records(item: Json | None, stack: StackRecord | None, deletion: Json | None, creation: Json | None) -> Records:
    return Records(
        item=item,
        stack=stack,
        is_delete_asked=deletion is not None,
        is_accepted=creation is not None and _is_accepted(creation),
    )


def _is_accepted(operation: Json) -> bool:
    """Previews share the names of operations, and prove nothing."""
    is_creation = operation["spec"]["kind"] in CREATIONS
    return is_creation and operation.get("status", {}).get("phase") == OperationPhase.SUCCEEDED


def _deletion_name(address: StackAddress, item: Json | None, stack: StackRecord | None) -> str:
    uid = stack.uid if stack is not None else item["metadata"]["uid"] if item is not None else ""
    return delete_operation_name(address.ledger_tenant, uid)


def _creation_name(address: StackAddress, stack: StackRecord | None) -> str:
    operation_id = stack.recorded.operation_id if stack is not None and stack.recorded is not None else ""
    return operation_name(address.ledger_tenant, operation_id)
