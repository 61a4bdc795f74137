"""`/api/v1/health` and `/api/v1/operator/inventory`. Probes and metrics have listeners of their own (`process`)."""

from fastapi import APIRouter, Request

from gpu_platform.api_models.envelope import Envelope
from gpu_platform.api_models.health import HealthView, InventoryView, LivenessView
from platform_api.auth.access import AnyCaller, Operator
from platform_api.deps import KubeCluster, deps_of
from platform_api.health.inventory import build_inventory, observe_holdings
from platform_api.health.service import build_health, observe_health
from platform_api.http.routes import Route

OPEN_OR_KEY = {"x-optional-key": True}

router = APIRouter(prefix="/api/v1", route_class=Route)


@router.get("/health", tags=["health"], openapi_extra=OPEN_OR_KEY)
async def get_health(caller: AnyCaller, request: Request) -> Envelope[HealthView | LivenessView]:
    """What the platform has and lacks; without a key, only that it answers. At once, also without Kubernetes."""
    return Envelope(data=LivenessView() if caller is None else build_health(observe_health(deps_of(request))))


@router.get("/operator/inventory", tags=["inventory"])
async def get_inventory(_: Operator, cluster: KubeCluster) -> Envelope[InventoryView]:
    """Nodes and GPUs, stock by spec, pools. From memory, also while Kubernetes is away."""
    cluster.require_listed(*cluster.caches)
    return Envelope(data=build_inventory(observe_holdings(cluster), is_connected=cluster.pulse.is_felt))
