"""`/api/v1/gpu-units/{name}/metrics`."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from gpu_platform.api_models.envelope import Envelope
from gpu_platform.api_models.units import UnitMetricsView
from gpu_platform.domain.value import Value
from platform_api.auth.access import Viewer
from platform_api.deps import deps_of, units_of
from platform_api.gpu_units.service import UnitService
from platform_api.gpu_units.views import view_gpu
from platform_api.health.gpu_readings import select_pods
from platform_api.http.bodies import answer
from platform_api.http.errors import not_found, unavailable

BODIES: tuple[type[Value], ...] = ()

router = APIRouter(prefix="/api/v1/gpu-units", tags=["GPU units"])


@router.get("/{name}/metrics", response_model=Envelope[UnitMetricsView])
async def read_unit_metrics(
    caller: Viewer,
    units: Annotated[UnitService, Depends(units_of)],
    request: Request,
    name: str,
) -> Response:
    """How busy the unit's GPUs are, and how much of their memory is used: a few seconds old at most."""
    gpus = deps_of(request).gpus
    unit = await units.reads.get(caller, name)
    if not gpus.is_configured:
        raise not_found("gpu_metrics_not_configured", "this platform does not ask its GPUs (nvidiaMetricsEndpoint)")
    if gpus.problem is not None or gpus.read_at is None:
        raise unavailable(f"the GPUs cannot be asked just now: {gpus.problem}")
    read_at, readings = gpus.read_at, gpus.readings
    pods = [pod["metadata"]["name"] for pod in await units.reads.pods_of(unit)]
    devices = tuple(map(view_gpu, select_pods(readings, caller.namespace, pods)))
    return answer(UnitMetricsView(unit=name, read_at=read_at, devices=devices))
