"""The application: every resource's routes in one frame. No server, no files, no environment: all of that is `deps`."""

import logging
from functools import partial

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from gpu_platform.domain.value import RequestError
from gpu_platform.kube import KubeError
from gpu_platform.nats.errors import QueueFullError, QueueUnavailableError
from platform_api.auth.access import find_tenant
from platform_api.deps import Deps
from platform_api.functions import endpoints as functions
from platform_api.gpu_units import endpoints as gpu_units
from platform_api.health import endpoints as health
from platform_api.http import openapi
from platform_api.http.bodies import error_response, refusal
from platform_api.http.errors import ApiError, from_kube, invalid_field, unavailable
from platform_api.http.middleware import (
    UNEXPECTED,
    Application,
    Frame,
    RateLimitHeaders,
    current_request_id,
    only_local_callers,
)
from platform_api.invocations import endpoints as invocations
from platform_api.invocations.limits import PATH as INVOCATIONS
from platform_api.proxy import endpoints as proxying
from platform_api.stacks import endpoints as stacks
from platform_api.stock import endpoints as stock
from platform_api.storages import endpoints as storages

RESOURCES = (
    # In the order in which a request is held against them: calls come most often.
    invocations,
    health,
    gpu_units,
    proxying,
    storages,
    functions,
    stock,
    stacks,
    openapi,
)

ROUTERS: tuple[APIRouter, ...] = tuple(resource.router for resource in RESOURCES)

log = logging.getLogger(__name__)

CODES = {404: "not_found", 405: "method_not_allowed"}


def create_app(deps: Deps) -> Application:
    app = build_routes()
    app.state.deps = deps
    settings = deps.settings
    return Frame(
        RateLimitHeaders(only_local_callers(app, settings.public_url) if settings.auth == "none" else app),
        body_limit=deps.settings.max_body_bytes,
        larger_limits={("POST", INVOCATIONS): deps.settings.max_invocation_bytes},
        passed_on=proxying.PASSED_ON,
        in_flight_limit=deps.settings.max_requests_in_flight,
        client_seconds=deps.settings.client_timeout_seconds,
        tenant_of=partial(find_tenant, deps),
        metrics=deps.metrics,
    )


def build_routes() -> FastAPI:
    """The routes without anything behind them: enough to describe them."""
    app = FastAPI(
        title="GPU platform",
        version="v1",
        description="Rent GPU units out of warm stock, and keep the stock.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        generate_unique_id_function=lambda route: route.name,
        # Looked up anew for each request; what is counted is counted in the frame.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.routers = ROUTERS
    for router in ROUTERS:
        app.include_router(router)
    app.add_exception_handler(ApiError, _answer_error)
    app.add_exception_handler(RequestError, _answer_error)
    app.add_exception_handler(KubeError, _answer_error)
    app.add_exception_handler(QueueUnavailableError, _answer_error)
    app.add_exception_handler(QueueFullError, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_error)
    app.add_exception_handler(HTTPException, _answer_error)
    app.add_exception_handler(Exception, _answer_unexpected)
    return app


async def _answer_error(_: Request, error: Exception) -> Response:
    known = _as_api_error(error)
    if isinstance(error, KubeError):
        log.warning("kubernetes.refused", extra={"requestID": current_request_id.get(), "error": str(error)})
    return error_response(
        known.status, known.code, known.message, current_request_id.get(), known.details, known.headers
    )


async def _answer_unexpected(_: Request, error: Exception) -> Response:
    """The frame logs it: whoever asked for this handler raises the error again afterwards."""
    del error
    return error_response(500, "internal_error", UNEXPECTED, current_request_id.get())


def _as_api_error(error: Exception) -> ApiError:
    match error:
        case ApiError():
            return error
        case RequestError(field=field, message=message):
            return invalid_field(field, message)
        case KubeError():
            return from_kube(error)
        case QueueUnavailableError():
            return unavailable(f"{error}; calls that were accepted are safe")
        case QueueFullError():
            return unavailable("there is no room for this in NATS just now")
        case RequestValidationError():
            return refusal(error.errors(), skip=1)
        case HTTPException(status_code=status, detail=detail):
            code = CODES.get(status, "invalid_request" if status < 500 else "internal_error")
            return ApiError(status, code, str(detail), headers=error.headers)
    raise error
