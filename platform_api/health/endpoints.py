"""`/api/v1/health` for people, `/livez` and `/readyz` for Kubernetes, `/metrics` for Prometheus."""

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from gpu_platform.domain.value import Value
from platform_api.deps import deps_of
from platform_api.health.schemas import HealthView, LivenessView
from platform_api.health.service import build_health, find_unready, observe_health
from platform_api.http.envelope import Envelope, answer
from platform_api.keys.access import AnyCaller, Operator

BODIES: tuple[type[Value], ...] = ()

OPEN = {"x-open": True}
OPEN_OR_KEY = {"x-optional-key": True}

router = APIRouter(tags=["health"])


@router.get("/api/v1/health", response_model=Envelope[HealthView | LivenessView], openapi_extra=OPEN_OR_KEY)
async def read_health(caller: AnyCaller, request: Request) -> Response:
    """What the platform has and lacks; without a key, only that it answers. At once, also without Kubernetes."""
    return answer(LivenessView() if caller is None else build_health(observe_health(deps_of(request))))


@router.get("/livez", response_class=PlainTextResponse, openapi_extra=OPEN)
async def read_liveness() -> PlainTextResponse:
    """This process is not stuck."""
    return PlainTextResponse("ok\n")


@router.get(
    "/readyz",
    response_class=PlainTextResponse,
    openapi_extra=OPEN,
    responses={503: {"content": {"text/plain": {}}, "description": "Not ready: one line for each problem"}},
)
async def read_readiness(request: Request) -> PlainTextResponse:
    """Requests can be served."""
    problems = find_unready(deps_of(request))
    return PlainTextResponse("\n".join((*problems, "")) or "ok\n", 503 if problems else 200)


@router.get("/metrics", response_class=PlainTextResponse)
async def read_metrics(_: Operator, request: Request) -> Response:
    """All figures, in Prometheus' text format."""
    return Response(deps_of(request).metrics.render(), headers={"Content-Type": CONTENT_TYPE_LATEST})
