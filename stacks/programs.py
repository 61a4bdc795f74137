"""The programs of the stacks: one resource each, declared from what the API accepted."""

from collections.abc import Callable

import pulumi

from gpu_platform.domain.stacks import Intent, StackKind
from providers.cluster.resources import GpuUnit, StockPool


def build_program(intent: Intent) -> Callable[[], None]:
    def program() -> None:
        address = intent.address
        resource: GpuUnit | StockPool
        if address.kind is StackKind.GPU_UNIT:
            resource = GpuUnit(
                address.name,
                tenant=address.tenant,
                name=address.name,
                spec=intent.spec,
                operation_id=intent.operation_id,
                request_hash=intent.request_hash,
                object_uid=intent.uid,
            )
        else:
            resource = StockPool(
                address.name,
                name=address.name,
                spec=intent.spec,
                operation_id=intent.operation_id,
                request_hash=intent.request_hash,
                object_uid=intent.uid,
            )
        pulumi.export("uid", resource.uid)
        pulumi.export("acceptedHash", resource.accepted_hash)

    return program
