"""`/api/v1/operator/inventory`."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gpu_platform.api_models.envelope import Envelope
from gpu_platform.api_models.health import InventoryView
from gpu_platform.domain.value import Value
from platform_api.auth.access import Operator
from platform_api.deps import cluster_of
from platform_api.health.inventory import build_inventory, observe_holdings
from platform_api.http.bodies import answer
from platform_api.listed import require_listed

BODIES: tuple[type[Value], ...] = ()

router = APIRouter(prefix="/api/v1/operator/inventory", tags=["inventory"])


@router.get("", response_model=Envelope[InventoryView])
async def read_inventory(_: Operator, request: Request) -> Response:
    """Nodes and GPUs, stock by spec, pools. From memory, also while Kubernetes is away."""
    cluster = cluster_of(request)
    require_listed(*cluster.caches)
    return answer(build_inventory(observe_holdings(cluster), is_connected=cluster.pulse.is_felt))
