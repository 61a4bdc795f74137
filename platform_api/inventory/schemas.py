"""What operators are shown of the whole."""

from typing import Annotated

from pydantic import Field

from gpu_platform.domain.stock_pools import PoolPhase
from gpu_platform.domain.value import Value
from platform_api.inventory.nodes import GpuProduct


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
