"""What operators say about stock pools, and what they are shown."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from gpu_platform.api_models.fields import Amount, NewSpecName, StockNamespace
from gpu_platform.domain.conditions import find_condition
from gpu_platform.domain.pool_requests import Gpu, PoolName, PoolRequest, default_pool_name
from gpu_platform.domain.stacks import stack_name_of
from gpu_platform.domain.stock_pools import REPLICAS_LIMIT, PoolPhase, StockPoolSpec, StockPoolStatus
from gpu_platform.domain.units import Image
from gpu_platform.domain.value import Value
from platform_api.fields import OperationID, StackName

Json = dict[str, Any]

Replicas = Annotated[int, Field(ge=0, le=REPLICAS_LIMIT, description="Free units to hold.")]
Replenish = Annotated[
    Literal["Always", "Never"], Field(description="Never: made once, and back when a unit from here is deleted.")
]
PlaceholderImage = Annotated[Image, Field(description="The placeholder's image.")]


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
        return PoolRequest(
            name=self.name or default_pool_name(self.spec_name, self.operation_id),
            spec_name=self.spec_name,
            image=self.image,
            memory=self.memory,
            gpu=self.gpu,
            replicas=self.replicas,
            replenish=self.replenish,
        )


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


def view_of(pool: Json) -> PoolView:
    metadata = pool["metadata"]
    spec = StockPoolSpec.model_validate(pool["spec"])
    status = StockPoolStatus.model_validate(pool.get("status") or {})
    ready = find_condition(status.conditions, "Ready")
    is_leaving = "deletionTimestamp" in metadata
    return PoolView(
        name=metadata["name"],
        namespace=metadata["namespace"],
        spec_name=spec.spec_name,
        replicas=spec.replicas,
        replenish=spec.replenish,
        image=spec.image,
        available=status.available,
        claimed=status.claimed,
        phase=PoolPhase.TERMINATING if is_leaving else status.phase or PoolPhase.PROGRESSING,
        generation=metadata["generation"],
        observed_generation=status.observed_generation,
        last_sync_time=status.last_sync_time,
        created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
        stack=stack_name_of(pool),
        reason=ready.reason if ready else None,
        message=ready.message if ready else None,
    )
