"""The programs of the stacks: one resource each, declared from what the API accepted."""

from collections.abc import Callable
from typing import Any

import pulumi

from gpu_platform.domain.stacks import Intent, StackKind
from providers.cluster.resources import GpuFunction, GpuStorage, GpuUnit, StockPool


def build_program(intent: Intent) -> Callable[[], None]:
    def program() -> None:
        resource = _declare(intent)
        pulumi.export("uid", resource.uid)
        pulumi.export("acceptedHash", resource.accepted_hash)

    return program


def _declare(intent: Intent) -> GpuUnit | GpuStorage | GpuFunction | StockPool:
    address = intent.address
    said: dict[str, Any] = {
        "name": address.name,
        "spec": intent.spec,
        "operation_id": intent.operation_id,
        "request_hash": intent.request_hash,
        "object_uid": intent.uid,
    }
    match address.kind:
        case StackKind.GPU_UNIT:
            return GpuUnit(address.name, tenant=address.tenant, **said)
        case StackKind.GPU_STORAGE:
            return GpuStorage(address.name, tenant=address.tenant, **said)
        case StackKind.GPU_FUNCTION:
            return GpuFunction(address.name, tenant=address.tenant, **said)
        case StackKind.STOCK_POOL:
            return StockPool(address.name, **said)
