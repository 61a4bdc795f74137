"""StockPool: how much warm stock of one spec is held."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from gpu_platform.domain.conditions import Condition
from gpu_platform.domain.specs import SpecName
from gpu_platform.domain.value import Value

REPLICAS_LIMIT = 10_000


class PoolPhase(StrEnum):
    PROGRESSING = "Progressing"
    READY = "Ready"
    FAILED = "Failed"
    TERMINATING = "Terminating"


class PoolReason(StrEnum):
    DEPLOYMENT_PROGRESSING = "DeploymentProgressing"
    DEPLOYMENT_READY = "DeploymentReady"
    SCALED_TO_ZERO = "ScaledToZero"
    INVALID_SPEC = "InvalidSpec"


class StockPoolSpec(Value):
    """The stock to hold. Another spec is another pool."""

    spec_name: SpecName
    replicas: Annotated[int, Field(ge=0, le=REPLICAS_LIMIT, description="Free units to hold.")]
    replenish: Annotated[
        Literal["Always", "Never"],
        Field(description="Never: made once, and one comes back when a unit that was taken from here is deleted."),
    ] = "Always"
    image: Annotated[str | None, Field(description="The placeholder's image.")] = None


class StockPoolStatus(Value):
    """The stock that is held."""

    available: Annotated[int, Field(description="Free units that are Ready.")] = 0
    claimed: Annotated[int, Field(description="Units on their way to a tenant.")] = 0
    seeded: Annotated[int, Field(description="Ordinals ever made, of a pool that does not replenish.")] = 0
    lent: Annotated[
        tuple[str, ...], Field(description="Running units of a pool that does not replenish: uid/stock unit.")
    ] = ()
    phase: Annotated[PoolPhase | None, Field(description="The state in one word; the condition Ready says why.")] = None
    observed_generation: Annotated[int | None, Field(description="Generation of the spec that was looked at.")] = None
    last_sync_time: Annotated[datetime | None, Field(description="When this status was last written.")] = None
    conditions: Annotated[tuple[Condition, ...], Field(description="Ready, and why or why not.")] = ()
