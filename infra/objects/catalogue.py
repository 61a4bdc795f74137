"""Custom resources that the configuration declares: what can be rented, and how much of it is kept warm."""

from gpu_platform.domain import names
from infra.objects.metadata import Json, build_metadata
from infra.sections import GpuSpec, StockPool


def build_gpu_spec(name: str, spec: GpuSpec, owner_stack: str) -> Json:
    # Only what was said: the rest is filled in by the API server, by the same model's defaults.
    said = spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    return _build("GPUSpec", name, None, said, owner_stack)


def build_stock_pool(name: str, pool: StockPool, owner_stack: str) -> Json:
    said = pool.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    return _build("StockPool", name, names.STOCK_NAMESPACE, said, owner_stack)


def _build(kind: str, name: str, namespace: str | None, spec: Json, owner_stack: str) -> Json:
    """With the stack's name: nobody else changes what a stack declares, and REST says whose it is."""
    metadata = build_metadata(name, namespace, annotations={names.ANNOTATION_OWNER_STACK: owner_stack})
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
