"""What has HTTP of its own, through the platform's door.

`/api/v1/gpu-units/{name}/proxy/{port}/…` is for editors, whatever the method: what a request does in a unit is the
unit's affair, and a GET to a notebook may run code. So being let in is being let do.

`/api/v1/gpu-storages/{name}/proxy/…` is the platform's own file browser. It only reads, so whoever may look, may.
"""

import re
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.convertors import Convertor, register_url_convertor

from platform_api.auth.access import Editor, Viewer
from platform_api.deps import Storages, Units, deps_of
from platform_api.http.routes import Route

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
READING_METHODS = ("GET", "HEAD")
PASSED_ON = re.compile(r"/api/v1/(gpu-units/[^/]+/proxy/[^/]+|gpu-storages/[^/]+/proxy)/")
"""Bodies here are as large as their senders like: nothing of them is kept."""


class _Rest(Convertor[str]):
    """What is left of a path. That of Starlette ends at a line break, which a file's name may have."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("rest", _Rest())

ANYTHING: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}

router = APIRouter(prefix="/api/v1", route_class=Route)


async def call_unit(caller: Editor, units: Units, request: Request, name: str, port: str, path: str) -> Response:
    """Call the unit itself, on a port that it declares, by name or number. The answer is the unit's own, with any
    status. Of the platform are 404 (no such unit or port), 429, 502 (it does not answer), 503 (it is not ready) and
    504. A WebSocket is passed on, too."""
    del path  # As it came, undecoded, it is in the request.
    deps = deps_of(request)
    prefix = f"/api/v1/gpu-units/{name}/proxy/{port}"
    finding = units.targets.find(caller, name, port)
    return await deps.forwarder.forward(request, caller, finding, prefix, lambda: deps.key_ring.knows(caller))


async def browse_storage(caller: Viewer, storages: Storages, request: Request, name: str, path: str) -> Response:
    """A file of the storage, or a list of them. The answer is the file browser's own. Of the platform are 404 (no such
    storage), 429, 502 (it does not answer), 503 (there is none, or it is not ready) and 504."""
    del path
    deps = deps_of(request)
    prefix = f"/api/v1/gpu-storages/{name}/proxy"
    finding = storages.targets.find(caller, name)
    return await deps.forwarder.forward(request, caller, finding, prefix, lambda: deps.key_ring.knows(caller))


for method in METHODS:
    router.add_api_route(
        "/gpu-units/{name}/proxy/{port}/{path:rest}",
        call_unit,
        methods=[method],
        tags=["GPU units"],
        response_class=Response,
        operation_id=f"call_unit_{method.lower()}",
        responses={200: {"description": "The unit's own answer", "content": {"*/*": ANYTHING}}},
    )

for method in READING_METHODS:
    router.add_api_route(
        "/gpu-storages/{name}/proxy/{path:rest}",
        browse_storage,
        methods=[method],
        tags=["GPU storages"],
        response_class=Response,
        operation_id=f"browse_storage_{method.lower()}",
        responses={200: {"description": "The file browser's own answer", "content": {"*/*": ANYTHING}}},
    )
