"""Custom resources that the configuration declares: what can be rented, and how much of it is kept warm."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import pulumi
from pydantic import ConfigDict, Field

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.specs import GPUSpecSpec
from gpu_platform.domain.stock import CatalogueName, StockPoolSpec
from infra.component import Component, build_metadata, name_of
from infra.field_types import Amount, StrictToleration


class GpuSpec(GPUSpecSpec):
    """An entry of the catalogue."""

    model_config = ConfigDict(extra="forbid")

    cpu: Amount = "1"
    memory: Amount
    ephemeral_storage: Amount | None = None
    tolerations: Annotated[tuple[StrictToleration, ...], Field(max_length=32)] = ()


class StockPool(StockPoolSpec):
    model_config = ConfigDict(extra="forbid")

    spec_name: CatalogueName


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


@dataclass(frozen=True)
class CatalogueArgs:
    specs: Mapping[str, GpuSpec]
    owner_stack: str


class Catalogue(Component):
    def __init__(self, name: str, args: CatalogueArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("Catalogue", name, opts)
        declared = [
            self.declare(build_gpu_spec(spec_name, spec, args.owner_stack))
            for spec_name, spec in sorted(args.specs.items())
        ]
        self.gpu_specs = pulumi.Output.all(*map(name_of, declared))
        self.register_outputs({"gpuSpecs": self.gpu_specs})


@dataclass(frozen=True)
class StockPoolsArgs:
    pools: Mapping[str, StockPool]
    owner_stack: str


class StockPools(Component):
    def __init__(self, name: str, args: StockPoolsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("StockPools", name, opts)
        self.replicas: dict[str, pulumi.Output[int]] = {}
        for pool_name, pool in sorted(args.pools.items()):
            declared = self.declare(build_stock_pool(pool_name, pool, args.owner_stack))
            self.replicas[pool_name] = getattr(declared, "spec")["replicas"]  # noqa: B009 - not in the base class
        self.register_outputs({"stockPools": self.replicas})
