"""`/openapi.json`, and the page that shows it."""

from functools import lru_cache

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, Response

from gpu_platform.domain.value import Value
from platform_api.documents.page import (
    ASSETS_PATH,
    CACHED,
    MEDIA_TYPES,
    PAGE_POLICY,
    START,
    STATIC,
    build_page,
    build_start,
)
from platform_api.http.envelope import JSON, encode_json
from platform_api.http.errors import not_found
from platform_api.openapi import describe

BODIES: tuple[type[Value], ...] = ()

DOCUMENT = "/openapi.json"

router = APIRouter(include_in_schema=False)


@lru_cache(maxsize=1)
def _encode_description(app: FastAPI) -> bytes:
    """Once: it takes the event loop milliseconds, and anyone may ask for it."""
    return encode_json(describe(app, app.state.bodies))


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
