"""`/api/v1/health`. Probes and metrics are on listeners of their own; see `process`."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gpu_platform.api_models.envelope import Envelope
from gpu_platform.api_models.health import HealthView, LivenessView
from gpu_platform.domain.value import Value
from platform_api.auth.access import AnyCaller
from platform_api.deps import deps_of
from platform_api.health.service import build_health, observe_health
from platform_api.http.bodies import answer

BODIES: tuple[type[Value], ...] = ()

OPEN_OR_KEY = {"x-optional-key": True}

router = APIRouter(tags=["health"])


@router.get("/api/v1/health", response_model=Envelope[HealthView | LivenessView], openapi_extra=OPEN_OR_KEY)
async def read_health(caller: AnyCaller, request: Request) -> Response:
    """What the platform has and lacks; without a key, only that it answers. At once, also without Kubernetes."""
    return answer(LivenessView() if caller is None else build_health(observe_health(deps_of(request))))
