"""Answers about the whole platform: its health and its inventory."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from gpu_platform.domain.stock import PoolPhase
from gpu_platform.domain.value import Value


class GpuProduct(Value):
    """All GPUs of one model."""

    product: Annotated[str, Field(description="As the nodes' label `nvidia.com/gpu.product` says it.")]
    node_count: int
    capacity: int
    allocatable: int


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


class NodeInventory(Value):
    """One node."""

    name: str
    ready: bool
    product: str
    capacity: int
    allocatable: int
    used: Annotated[int, Field(description="GPUs of the units, stock included, whose pods run there.")]


class SpecInventory(Value):
    """One spec: its stock, and the tenants' units of it."""

    spec_name: str
    available: int
    waiting: int
    claimed: int
    units: int


class PoolInventory(Value):
    """One pool."""

    name: str
    spec_name: str
    replicas: int
    available: int
    claimed: int
    phase: PoolPhase


class InventoryView(Value):
    """What there is, and who has it."""

    kubernetes_connected: bool
    node_count: int
    ready_node_count: int
    total_gpu_capacity: int
    total_gpu_allocatable: int
    gpu_products: tuple[GpuProduct, ...]
    nodes: tuple[NodeInventory, ...]
    specs: tuple[SpecInventory, ...]
    pools: tuple[PoolInventory, ...]
