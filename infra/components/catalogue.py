"""What can be rented, and how much of it is kept warm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from infra.declaring import declare, name_of
from infra.objects.catalogue import build_gpu_spec, build_stock_pool
from infra.sections import GpuSpec, StockPool


@dataclass(frozen=True)
class CatalogueArgs:
    specs: Mapping[str, GpuSpec]
    owner_stack: str
    after: Sequence[pulumi.Resource]
    """The kinds."""


class Catalogue(pulumi.ComponentResource):
    def __init__(self, name: str, args: CatalogueArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-platform:infra:Catalogue", name, {}, opts)
        declared = [
            declare(build_gpu_spec(spec_name, spec, args.owner_stack), self, after=args.after)
            for spec_name, spec in sorted(args.specs.items())
        ]
        self.gpu_specs = pulumi.Output.all(*map(name_of, declared))
        self.register_outputs({"gpuSpecs": self.gpu_specs})


@dataclass(frozen=True)
class StockPoolsArgs:
    pools: Mapping[str, StockPool]
    owner_stack: str
    after: Sequence[pulumi.Resource]
    """The kinds, the namespaces, and the catalogue that the pools name."""


class StockPools(pulumi.ComponentResource):
    def __init__(self, name: str, args: StockPoolsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-platform:infra:StockPools", name, {}, opts)
        self.replicas: dict[str, pulumi.Output[int]] = {}
        for pool_name, pool in sorted(args.pools.items()):
            declared = declare(build_stock_pool(pool_name, pool, args.owner_stack), self, after=args.after)
            self.replicas[pool_name] = getattr(declared, "spec")["replicas"]  # noqa: B009 - not in the base class
        self.register_outputs({"stockPools": self.replicas})
