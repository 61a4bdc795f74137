"""The programs of the stacks: one resource each, declared from what the API accepted."""

from collections.abc import Callable

import pulumi

from gpu_platform.domain.stacks import Intent, StackKind
from providers.cluster.resources import GpuFunction, GpuUnit, StockPool


def build_program(intent: Intent) -> Callable[[], None]:
    def program() -> None:
        resource = DECLARATIONS[intent.address.kind](intent)
        pulumi.export("uid", resource.uid)
        pulumi.export("acceptedHash", resource.accepted_hash)

    return program


def _declare_unit(intent: Intent) -> GpuUnit:
    address = intent.address
    return GpuUnit(
        address.name,
        tenant=address.tenant,
        name=address.name,
        spec=intent.spec,
        operation_id=intent.operation_id,
        request_hash=intent.request_hash,
        object_uid=intent.uid,
    )


def _declare_function(intent: Intent) -> GpuFunction:
    address = intent.address
    return GpuFunction(
        address.name,
        tenant=address.tenant,
        name=address.name,
        spec=intent.spec,
        operation_id=intent.operation_id,
        request_hash=intent.request_hash,
        object_uid=intent.uid,
    )


def _declare_pool(intent: Intent) -> StockPool:
    address = intent.address
    return StockPool(
        address.name,
        name=address.name,
        spec=intent.spec,
        operation_id=intent.operation_id,
        request_hash=intent.request_hash,
        object_uid=intent.uid,
    )


DECLARATIONS: dict[StackKind, Callable[[Intent], GpuUnit | GpuFunction | StockPool]] = {
    StackKind.GPU_UNIT: _declare_unit,
    StackKind.GPU_FUNCTION: _declare_function,
    StackKind.STOCK_POOL: _declare_pool,
}
