"""Requests and answers about what operators keep ready: the catalogue of specs, stock pools, stock units, and the jobs
that make them."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from gpu_platform.api_models.fields import Amount, NewSpecName, OperationID, StackName, StockNamespace
from gpu_platform.domain.specs import GPUSpecSpec
from gpu_platform.domain.stock import (
    REPLICAS_LIMIT,
    Gpu,
    PoolName,
    PoolPhase,
    PoolRequest,
    StockUnitsRequest,
    default_pool_name,
)
from gpu_platform.domain.units import Image, Phase
from gpu_platform.domain.value import Value, fields_of

Replicas = Annotated[int, Field(ge=0, le=REPLICAS_LIMIT, description="Free units to hold.")]

Replenish = Annotated[
    Literal["Always", "Never"], Field(description="Never: made once, and back when a unit from here is deleted.")
]

PlaceholderImage = Annotated[Image, Field(description="The placeholder's image.")]


class SpecView(GPUSpecSpec):
    """An entry of the catalogue."""

    name: Annotated[str, Field(description="What `specName` says wherever it stands.")]


class CreateStockPool(Value):
    """A pool to keep. A spec that is not in the catalogue needs its memory and GPUs."""

    operation_id: OperationID
    name: PoolName | None = None
    namespace: Annotated[StockNamespace | None, Field(description="runtime-stock, if it is said at all.")] = None
    spec_name: NewSpecName
    image: PlaceholderImage | None = None
    memory: Amount | None = None
    gpu: Gpu | None = None
    replicas: Replicas
    replenish: Replenish = "Always"

    def to_request(self) -> PoolRequest:
        name = self.name or default_pool_name(self.spec_name, self.operation_id)
        return PoolRequest(**(fields_of(self, PoolRequest) | {"name": name}))


class ChangeStockPool(Value):
    """A change of a pool. What is not said stays."""

    replicas: Replicas | None = None
    replenish: Replenish | None = None
    image: PlaceholderImage | None = None


class PoolView(Value):
    """A pool of warm stock."""

    name: str
    namespace: str
    spec_name: str
    replicas: int
    replenish: Literal["Always", "Never"]
    image: str | None = None
    available: Annotated[int, Field(description="Free units that are Ready.")]
    claimed: Annotated[int, Field(description="Units on their way to a tenant.")]
    phase: PoolPhase
    generation: int
    observed_generation: int | None = None
    last_sync_time: datetime | None = None
    created_at: datetime
    stack: StackName = None
    reason: str | None = None
    message: str | None = None


class SeedStockUnits(Value):
    """Stock units to make, once. A spec that is not in the catalogue needs its memory and GPUs."""

    operation_id: OperationID
    spec_name: NewSpecName
    memory: Amount | None = None
    gpu: Gpu | None = None
    replicas: Annotated[int, Field(ge=1, le=REPLICAS_LIMIT, description="Units to make.")]

    def to_request(self) -> StockUnitsRequest:
        return StockUnitsRequest(**fields_of(self, StockUnitsRequest))


class StockState(StrEnum):
    AVAILABLE = "available"
    """Free and Ready."""

    WAITING = "waiting"
    """Free, and not Ready, or on its way out."""

    CLAIMED = "claimed"
    """On its way to a tenant."""


class StockUnitView(Value):
    """A unit of warm stock."""

    name: str
    namespace: str
    lifecycle: Literal["stock"] = "stock"
    pool: str | None = None
    spec_name: str
    memory: str | None = None
    gpu: int | None = None
    state: StockState
    claimed_by: Annotated[str | None, Field(description="Namespace and name of the unit that takes it over.")] = None
    phase: Phase
    node_name: str | None = None
    created_at: datetime
    reason: str | None = None
    message: str | None = None


class JobType(StrEnum):
    SEED_STOCK_UNITS = "seed_stock_units"
    CREATE_STOCK_POOL = "create_stock_pool"


class JobStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class JobView(Value):
    """Work that was accepted. Success means that the objects are there, not that they are ready."""

    id: Annotated[str, Field(description="The operationID.")]
    operation_id: Annotated[str, Field(alias="operationID")]
    type: JobType
    status: JobStatus
    error: Annotated[str | None, Field(description="Why it failed.")] = None
    object_name: Annotated[str, Field(description="The pool that it makes.")]
    object_namespace: str
    stack: Annotated[str | None, Field(description="The Pulumi stack of that pool; none once it failed.")] = None
    created_at: datetime
    updated_at: datetime
