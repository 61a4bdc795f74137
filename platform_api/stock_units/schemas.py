"""What operators say about stock units, and what they are shown."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from gpu_platform.api_models.fields import Amount, NewSpecName
from gpu_platform.domain import names
from gpu_platform.domain.conditions import find_condition
from gpu_platform.domain.gpu_units import GPUUnitSpec, GPUUnitStatus, Phase
from gpu_platform.domain.metadata import labels_of
from gpu_platform.domain.pool_requests import Gpu, StockUnitsRequest
from gpu_platform.domain.stock import claim_holder_of, is_available, is_claimed
from gpu_platform.domain.stock_pools import REPLICAS_LIMIT
from gpu_platform.domain.value import Value
from platform_api.fields import OperationID

Json = dict[str, Any]


class SeedStockUnits(Value):
    """Stock units to make, once. A spec that is not in the catalogue needs its memory and GPUs."""

    operation_id: OperationID
    spec_name: NewSpecName
    memory: Amount | None = None
    gpu: Gpu | None = None
    replicas: Annotated[int, Field(ge=1, le=REPLICAS_LIMIT, description="Units to make.")]

    def to_request(self) -> StockUnitsRequest:
        return StockUnitsRequest(spec_name=self.spec_name, memory=self.memory, gpu=self.gpu, replicas=self.replicas)


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


def state_of(stock: Json) -> StockState:
    if is_claimed(stock):
        return StockState.CLAIMED
    return StockState.AVAILABLE if is_available(stock) else StockState.WAITING


def pool_of(stock: Json) -> str | None:
    return labels_of(stock).get(names.LABEL_POOL)


def view_of(stock: Json) -> StockUnitView:
    metadata = stock["metadata"]
    spec = GPUUnitSpec.model_validate(stock["spec"])
    status = GPUUnitStatus.model_validate(stock.get("status") or {})
    ready = find_condition(status.conditions, "Ready")
    return StockUnitView(
        name=metadata["name"],
        namespace=metadata["namespace"],
        pool=pool_of(stock),
        spec_name=spec.spec_name,
        memory=spec.memory,
        gpu=spec.gpu,
        state=state_of(stock),
        claimed_by=claim_holder_of(stock),
        phase=Phase.TERMINATING if "deletionTimestamp" in metadata else status.phase or Phase.PENDING,
        node_name=status.node_name,
        created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
        reason=ready.reason if ready else None,
        message=ready.message if ready else None,
    )
