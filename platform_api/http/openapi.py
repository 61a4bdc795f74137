"""The API about itself: the OpenAPI description at `/openapi.json`, and the page at `/docs` that shows it.

`describe` is FastAPI's description, with the bodies that `http.routes` decodes and without what is never answered. The
page is Swagger UI out of an installed package, under a policy that lets nothing else run. `tools/generate.py` writes
the description to docs/openapi.json.
"""

from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, HTMLResponse, Response
from pydantic.json_schema import models_json_schema

from gpu_platform.api_models.envelope import ErrorEnvelope
from platform_api.http.bodies import JSON, REF_TEMPLATE, encode_json
from platform_api.http.errors import not_found
from platform_api.http.routes import Route

ERROR_REFERENCE = {"$ref": REF_TEMPLATE.format(model=ErrorEnvelope.__name__)}
NEVER_ANSWERED = "422"
UNUSED = ("HTTPValidationError", "ValidationError")
ASSETS_PATH = "/docs/assets"
START = "start.js"

PAGE_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        # Swagger UI sets `style` attributes; a style cannot run anything.
        "style-src 'self' 'unsafe-inline'",
        # Its icons are data URLs in its style sheet.
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)

CACHED = "public, max-age=3600"
"""The same files for every caller. An hour, so that an upgrade is seen soon."""

MEDIA_TYPES = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
}
"""Of the files that are served, and of no other one."""

STATIC = Path(str(files("fastapi_offline"))) / "static"
DOCUMENT = "/openapi.json"
router = APIRouter(include_in_schema=False)


def describe(app: FastAPI) -> dict[str, Any]:
    """The description of an app with its `state.routers`."""
    routes = [route for router in app.state.routers for route in router.routes]
    bodies = [route.body for route in routes if isinstance(route, Route) and route.body is not None]
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in UNUSED:
        schemas.pop(name, None)
    models: list[Any] = [(model, "validation") for model in (*bodies, ErrorEnvelope)]
    _, definitions = models_json_schema(models, ref_template=REF_TEMPLATE)
    for name, schema in definitions["$defs"].items():
        schemas.setdefault(name, schema)
    for model in bodies:
        _forbid_unknown(schemas, model.__name__)
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop(NEVER_ANSWERED, None)
            refused = {"description": "Refused, with the reason", "content": {JSON: {"schema": ERROR_REFERENCE}}}
            operation["responses"].setdefault("default", refused)
            is_optional = operation.pop("x-optional-key", False)
            operation["security"] = [*([{}] if is_optional else []), {"key": []}]
    return document


def _forbid_unknown(schemas: dict[str, Any], name: str) -> None:
    """Bodies are read strictly, whatever their models do elsewhere."""
    schema = schemas[name]
    if schema.get("type") != "object" or schema.get("additionalProperties") is False:
        return
    schema["additionalProperties"] = False
    for reference in _references(schema):
        _forbid_unknown(schemas, reference)


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"].rpartition("/")[2]] if "$ref" in node else []
        return own + [name for value in node.values() for name in _references(value)]
    if isinstance(node, list):
        return [name for value in node for name in _references(value)]
    return []


def build_page(title: str) -> str:
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="{ASSETS_PATH}/favicon.png">
<link rel="stylesheet" href="{ASSETS_PATH}/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="{ASSETS_PATH}/swagger-ui-bundle.js"></script>
<script src="{ASSETS_PATH}/{START}"></script>
</body>
</html>
"""


def build_start(description: str) -> str:
    """The script that shows the description at this path."""
    return f"""SwaggerUIBundle({{
  url: "{description}",
  dom_id: "#swagger-ui",
  deepLinking: true,
}});
"""


@lru_cache(maxsize=1)
def _encode_description(app: FastAPI) -> bytes:
    """Once: it takes the event loop milliseconds, and anyone may ask for it."""
    return encode_json(describe(app))


@router.get(DOCUMENT)
async def read_description(request: Request) -> Response:
    return Response(_encode_description(request.app), media_type=JSON)


@router.get("/docs")
@router.get("/swagger/index.html")
async def read_page() -> HTMLResponse:
    return HTMLResponse(build_page("GPU platform"), headers={"Content-Security-Policy": PAGE_POLICY})


@router.get(f"{ASSETS_PATH}/{START}")
async def read_start() -> Response:
    return Response(build_start(DOCUMENT), media_type="text/javascript", headers={"Cache-Control": CACHED})


@router.get(f"{ASSETS_PATH}/{{name}}")
async def read_asset(name: str) -> FileResponse:
    if name not in MEDIA_TYPES:
        raise not_found("not_found", f"file {name!r} not found; the page at /docs names its files")
    return FileResponse(STATIC / name, media_type=MEDIA_TYPES[name], headers={"Cache-Control": CACHED})
