"""`/api/v1/gpu-units/{name}/proxy/{port}/…`: a unit's own HTTP, through the platform's door.

For editors, whatever the method: what a request does in a unit is the unit's affair, and a GET to a notebook may run
code. So being let in is being let do.
"""

import re
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from gpu_platform.domain.tenants import Role
from gpu_platform.domain.value import Value
from platform_api.deps import deps_of, units_of
from platform_api.gpu_units.service import UnitService
from platform_api.keys.access import Requires
from platform_api.keys.key_ring import Caller

BODIES: tuple[type[Value], ...] = ()

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
PASSED_ON = re.compile(r"/api/v1/gpu-units/[^/]+/proxy/[^/]+/")
"""Bodies here are as large as their senders like: nothing of them is kept."""

ANYTHING: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}

router = APIRouter(prefix="/api/v1/gpu-units", tags=["GPU units"])

Editor = Annotated[Caller, Depends(Requires(Role.EDITOR))]
Units = Annotated[UnitService, Depends(units_of)]


async def call_unit(caller: Editor, units: Units, request: Request, name: str, port: str, path: str) -> Response:
    """Call the unit itself, on a port that it declares, by name or number. The answer is the unit's own, with any
    status. Of the platform are 404 (no such unit or port), 429, 502 (it does not answer), 503 (it is not ready) and
    504. A WebSocket is passed on, too."""
    del path  # As it came, undecoded, it is in the request.
    deps = deps_of(request)
    prefix = f"/api/v1/gpu-units/{name}/proxy/{port}"
    finding = units.targets.find(caller, name, port)
    return await deps.forwarder.forward(request, caller, finding, prefix, lambda: deps.key_ring.knows(caller))


for method in METHODS:
    router.add_api_route(
        "/{name}/proxy/{port}/{path:path}",
        call_unit,
        methods=[method],
        response_class=Response,
        operation_id=f"call_unit_{method.lower()}",
        responses={200: {"description": "The unit's own answer", "content": {"*/*": ANYTHING}}},
    )
