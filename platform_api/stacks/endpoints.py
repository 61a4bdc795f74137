"""Stacks of units and of pools, and previews of units."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response

from gpu_platform.api_models.envelope import Envelope
from gpu_platform.api_models.stacks import PreviewUnit, PreviewView, StackView
from gpu_platform.domain.value import Value
from platform_api.auth.access import Operator, Viewer, WritingEditor
from platform_api.deps import cluster_of, deps_of, units_of
from platform_api.gpu_units.service import UnitService
from platform_api.http.bodies import answer, decoded, optional_body_of
from platform_api.stacks import service
from platform_api.stock.service import get_pool

BODIES: tuple[type[Value], ...] = (PreviewUnit,)

router = APIRouter(prefix="/api/v1", tags=["stacks"])

Units = Annotated[UnitService, Depends(units_of)]


@router.get("/gpu-units/{name}/stack", response_model=Envelope[StackView])
async def get_unit_stack(caller: Viewer, units: Units, name: str) -> Response:
    """What Pulumi has recorded of a unit."""
    return answer(await service.get_stack(units.client, await units.reads.get(caller, name), "unit"))


@router.get("/operator/stockpools/{name}/stack", response_model=Envelope[StackView])
async def get_pool_stack(_: Operator, request: Request, name: str) -> Response:
    """What Pulumi has recorded of a pool."""
    client = cluster_of(request).client
    return answer(await service.get_stack(client, await get_pool(client, name), "stock pool"))


@router.post(
    "/gpu-units/{name}/preview",
    status_code=202,
    response_model=Envelope[PreviewView],
    responses={
        200: {
            "model": Envelope[PreviewView],
            "description": "It waits or runs already, or was asked for with this operationID",
        }
    },
    openapi_extra=optional_body_of(PreviewUnit),
)
async def preview_unit(
    caller: WritingEditor,
    request: Request,
    units: Units,
    name: str,
    body: Annotated[PreviewUnit, Depends(decoded(PreviewUnit, unsaid=PreviewUnit()))],
) -> Response:
    """Find out what Pulumi would change about a unit to make it as it was accepted. Changes nothing; the answer is a
    job."""
    limit = deps_of(request).limits.of(caller.tenant).previews
    unit = await units.reads.get(caller, name)
    accepted = await units.previews.accept(caller, unit, body.operation_id, limit)
    return answer(accepted.preview, 202 if accepted.is_new else 200)


# An operationID may have slashes.
@router.get("/gpu-units/{name}/previews/{operationID:path}", response_model=Envelope[PreviewView])
async def get_preview(
    caller: Viewer, units: Units, name: str, operation_id: Annotated[str, Path(alias="operationID")]
) -> Response:
    """A preview, by the operationID that it was asked for with. Kept for an hour after its end."""
    return answer(await units.previews.get(caller, name, operation_id))
