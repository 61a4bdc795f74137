"""`/openapi.json`, and the page that shows it."""

from fastapi import APIRouter, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, Response

from gpu_platform.domain.value import Value
from platform_api.http.envelope import json_response
from platform_api.http.openapi import describe

BODIES: tuple[type[Value], ...] = ()

DOCUMENT = "/openapi.json"

router = APIRouter(include_in_schema=False)


@router.get(DOCUMENT)
async def read_description(request: Request) -> Response:
    app = request.app
    if app.openapi_schema is None:
        app.openapi_schema = describe(app, app.state.bodies)
    return json_response(app.openapi_schema, 200)


@router.get("/docs")
@router.get("/swagger/index.html")
async def read_page() -> HTMLResponse:
    return get_swagger_ui_html(openapi_url=DOCUMENT, title="GPU platform")
