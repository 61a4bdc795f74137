"""What one pass knows about a unit: the values between `observe` and `plan`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from gpu_platform.domain.gpu_functions import GPUFunctionSpec
from gpu_platform.domain.specs import GPUSpecSpec

Json = dict[str, Any]


class ChildKind(StrEnum):
    NETWORK_POLICY = "NetworkPolicy"
    SERVICE = "Service"
    CONFIG_MAP = "ConfigMap"
    INGRESS = "Ingress"
    HTTP_ROUTE = "HTTPRoute"
    DEPLOYMENT = "Deployment"


@dataclass(frozen=True)
class SourceStock:
    """The stock that is claimed for this unit, while it exists."""

    unit: Json
    pods: tuple[Json, ...]
    claimed_at: datetime | None


@dataclass(frozen=True)
class Observed:
    unit: Json
    catalogue: GPUSpecSpec | None
    restricted: bool
    children: Mapping[ChildKind, Json]
    """The unit's own objects, as they are now."""

    leftovers: Mapping[ChildKind, Json]
    """Objects under this unit's names that belong to an earlier unit: they have to go first."""

    pods: tuple[Json, ...]
    is_claimed_stock: bool
    holder: Json | None
    """For claimed stock: the unit that takes it over."""

    holder_pods: tuple[Json, ...]
    source: SourceStock | None
    claims_under_way: tuple[datetime, ...]
    """For stock: when the other claims were made whose stock still stands."""

    stock_lurks: bool
    """For stock: pods of other stock wait for any GPU that becomes free."""

    function: GPUFunctionSpec | None = None
    """Whose calls the unit takes, if it takes any and the function exists."""

    token_secret: Json | None = None
    """Of a unit whose SSH has a token: the Secret that holds it, asked of the API server itself."""

    storages: Mapping[str, Json] = field(default_factory=dict)
    """Those of its mounts that exist."""

    away: Mapping[str, str] = field(default_factory=dict)
    """The nodes of its pods that are not Ready, and why."""

    stored: Json | None = None
    """The unit as it is stored, which an edit may have made another one than was accepted."""

    @property
    def deployment(self) -> Json | None:
        return self.children.get(ChildKind.DEPLOYMENT)

    @property
    def is_scaled_up(self) -> bool:
        """Whether the Deployment exists and asks for a pod. One that a stopped unit left at 0 does not: what still
        runs of it is on its way out."""
        deployment = self.deployment
        return deployment is not None and deployment["spec"].get("replicas") != 0

    def live(self, kind: ChildKind) -> Json | None:
        """Whatever has the child's name now, the unit's own or an earlier unit's."""
        return self.children.get(kind) or self.leftovers.get(kind)
