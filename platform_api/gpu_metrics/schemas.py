"""What a tenant is shown of the GPUs of a unit."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from gpu_platform.domain.value import Value
from platform_api.health.gpu_readings import Reading


class GpuView(Value):
    """One GPU, or one partition of one. What it did not say is left out."""

    gpu: Annotated[str, Field(description="Its number on its node.")]
    uuid: str
    product: str
    node: str
    partition: Annotated[str | None, Field(description="Of a GPU that is shared out: which part.")] = None
    utilization_percent: float | None = None
    memory_used_mib: Annotated[float | None, Field(alias="memoryUsedMiB")] = None
    memory_free_mib: Annotated[float | None, Field(alias="memoryFreeMiB")] = None
    memory_total_mib: Annotated[float | None, Field(alias="memoryTotalMiB")] = None


class UnitMetricsView(Value):
    """What the GPUs of a unit say."""

    unit: str
    read_at: Annotated[datetime, Field(description="When the exporter was asked.")]
    devices: Annotated[
        tuple[GpuView, ...],
        Field(description="Empty while the unit has no pod, or nobody says which GPUs are its own."),
    ]


def gpu_view_of(reading: Reading) -> GpuView:
    device = reading.device
    return GpuView(
        gpu=device.gpu,
        uuid=device.uuid,
        product=device.product,
        node=device.node,
        partition=device.partition or None,
        utilization_percent=reading.utilization_percent,
        memory_used_mib=reading.used_mib,
        memory_free_mib=reading.free_mib,
        memory_total_mib=reading.total_mib,
    )
