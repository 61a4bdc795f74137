"""The inventory: nodes, their GPUs, and which units hold them, counted from memory. No pods are followed for it: a unit
knows its node and its GPUs.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpu_platform.api_models.health import GpuProduct, InventoryView, NodeInventory, PoolInventory, SpecInventory
from gpu_platform.api_models.stock import StockState
from gpu_platform.domain import names
from gpu_platform.domain.conditions import is_true
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import labels_of
from gpu_platform.domain.quantities import QuantityError, parse_quantity
from gpu_platform.domain.units import Phase
from platform_api.cluster import Cluster
from platform_api.stock import service as stock_pools
from platform_api.stock.service import state_of

PRODUCT_LABEL = "nvidia.com/gpu.product"
UNKNOWN_PRODUCT = "unknown"
PHASES_WITH_A_POD = (Phase.READY, Phase.PROGRESSING)


@dataclass(frozen=True)
class GpuNode:
    name: str
    is_ready: bool
    product: str
    capacity: int
    allocatable: int


def read_node(node: Json) -> GpuNode:
    status = node.get("status") or {}
    return GpuNode(
        name=node["metadata"]["name"],
        is_ready=is_true(node, "Ready"),
        product=labels_of(node).get(PRODUCT_LABEL) or UNKNOWN_PRODUCT,
        capacity=_count_gpus(status.get("capacity")),
        allocatable=_count_gpus(status.get("allocatable")),
    )


def read_nodes(nodes: Iterable[Json]) -> tuple[GpuNode, ...]:
    return tuple(sorted(map(read_node, nodes), key=lambda node: node.name))


def sum_products(nodes: Iterable[GpuNode]) -> tuple[GpuProduct, ...]:
    """By product; nodes without a GPU are of none."""
    by_product: dict[str, list[GpuNode]] = {}
    for node in nodes:
        if node.capacity or node.allocatable:
            by_product.setdefault(node.product, []).append(node)
    return tuple(
        GpuProduct(
            product=product,
            node_count=len(members),
            capacity=sum(node.capacity for node in members),
            allocatable=sum(node.allocatable for node in members),
        )
        for product, members in sorted(by_product.items())
    )


def _count_gpus(amounts: dict[str, str] | None) -> int:
    try:
        return int(parse_quantity((amounts or {}).get(names.GPU_RESOURCE, "0")))
    except QuantityError:
        return 0


@dataclass(frozen=True)
class Holdings:
    """What the caches hold."""

    nodes: tuple[Json, ...]
    units: tuple[Json, ...]
    specs: tuple[Json, ...]
    pools: tuple[Json, ...]


def observe_holdings(cluster: Cluster) -> Holdings:
    return Holdings(
        nodes=cluster.nodes.objects(),
        units=cluster.units.objects(),
        specs=cluster.specs.objects(),
        pools=cluster.pools.objects(names.STOCK_NAMESPACE),
    )


def build_inventory(holdings: Holdings, *, is_connected: bool) -> InventoryView:
    nodes = read_nodes(holdings.nodes)
    sizes = {spec["metadata"]["name"]: spec["spec"].get("gpu", 0) for spec in holdings.specs}
    used = count_used(holdings.units, sizes)
    return InventoryView(
        kubernetes_connected=is_connected,
        node_count=len(nodes),
        ready_node_count=sum(node.is_ready for node in nodes),
        total_gpu_capacity=sum(node.capacity for node in nodes),
        total_gpu_allocatable=sum(node.allocatable for node in nodes),
        gpu_products=sum_products(nodes),
        nodes=tuple(_node(node, used[node.name]) for node in nodes),
        specs=count_specs(holdings.units, sizes),
        pools=tuple(map(_pool, sorted(holdings.pools, key=lambda pool: str(pool["metadata"]["name"])))),
    )


def count_used(units: Iterable[Json], sizes: Mapping[str, int]) -> Counter[str]:
    """GPUs by node: those of the units whose pod is there. A unit that does not say its GPUs has its spec's."""
    used: Counter[str] = Counter()
    for unit in units:
        status = unit.get("status") or {}
        node = status.get("nodeName")
        if node and status.get("phase") in PHASES_WITH_A_POD:
            used[node] += unit["spec"].get("gpu", sizes.get(unit["spec"]["specName"], 0))
    return used


def count_specs(units: Iterable[Json], catalogue: Iterable[str]) -> tuple[SpecInventory, ...]:
    """Every spec of the catalogue, and every other one that a unit still has."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in catalogue}
    for unit in units:
        is_stock = names.is_stock_namespace(unit["metadata"]["namespace"])
        counts.setdefault(unit["spec"]["specName"], Counter())[state_of(unit) if is_stock else "units"] += 1
    return tuple(
        SpecInventory(
            spec_name=name,
            available=count[StockState.AVAILABLE],
            waiting=count[StockState.WAITING],
            claimed=count[StockState.CLAIMED],
            units=count["units"],
        )
        for name, count in sorted(counts.items())
    )


def _node(node: GpuNode, used: int) -> NodeInventory:
    return NodeInventory(
        name=node.name,
        ready=node.is_ready,
        product=node.product,
        capacity=node.capacity,
        allocatable=node.allocatable,
        used=used,
    )


def _pool(pool: Json) -> PoolInventory:
    view = stock_pools.view_pool(pool)
    return PoolInventory(**{field: getattr(view, field) for field in PoolInventory.model_fields})
