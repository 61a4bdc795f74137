"""The platform's health, for callers with a key, and what all others may know of it."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from gpu_platform.domain.value import Value
from platform_api.inventory.nodes import GpuProduct


class LivenessView(Value):
    """What a request without a key is told: this process answers."""

    status: Literal["ok"] = "ok"


class HealthView(Value):
    """Health in figures; `degraded` says in words what is not as it should be."""

    started_at: datetime
    uptime_seconds: int
    kubernetes_connected: bool
    node_count: int
    ready_node_count: int
    kube_error: str | None = None
    stock_unit_count: int
    active_unit_count: Annotated[int, Field(description="Tenants' units.")]
    total_gpu_capacity: int
    total_gpu_allocatable: int
    capacity_as_before: Annotated[int, Field(alias="totalGPUCapacity", description="An alias of totalGpuCapacity.")]
    allocatable_as_before: Annotated[
        int, Field(alias="totalGPUAllocatable", description="An alias of totalGpuAllocatable.")
    ]
    gpu_products: tuple[GpuProduct, ...]
    nvidia_metrics_connected: bool = False
    nvidia_metrics_error: str | None = None
    gpu_device_count: int = 0
    total_gpu_memory_mib: Annotated[int, Field(alias="totalGpuMemoryMiB")] = 0
    used_gpu_memory_mib: Annotated[int, Field(alias="usedGpuMemoryMiB")] = 0
    free_gpu_memory_mib: Annotated[int, Field(alias="freeGpuMemoryMiB")] = 0
    average_gpu_utilization_percent: float = 0
    nats_connected: bool = False
    nats_error: Annotated[
        str | None, Field(description="Why no calls of functions are accepted: NATS is away, or stores nothing.")
    ] = None
    degraded: Annotated[tuple[str, ...], Field(description="One sentence for each cause; empty when all is well.")]
