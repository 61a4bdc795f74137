"""Nodes, as far as their GPUs go. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from gpu_platform.domain import names
from gpu_platform.domain.conditions import is_true
from gpu_platform.domain.metadata import labels_of
from gpu_platform.domain.quantities import QuantityError, parse_quantity
from gpu_platform.domain.value import Value

Json = dict[str, Any]

PRODUCT_LABEL = "nvidia.com/gpu.product"
UNKNOWN_PRODUCT = "unknown"


class GpuProduct(Value):
    """All GPUs of one model."""

    product: Annotated[str, Field(description="As the nodes' label `nvidia.com/gpu.product` says it.")]
    node_count: int
    capacity: int
    allocatable: int


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
