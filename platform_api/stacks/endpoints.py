"""Stacks and previews of units; `/api/v1/operator/drift`."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from gpu_platform.api_models.envelope import Envelope
from gpu_platform.api_models.stacks import DriftReport, PreviewUnit, PreviewView, StackView
from platform_api.auth.access import Operator, Viewer, WritingEditor
from platform_api.deps import Drift, KubeCluster, Units, deps_of
from platform_api.http.routes import Answer, Route
from platform_api.stacks.drift import build_report

router = APIRouter(prefix="/api/v1", route_class=Route)

DEFAULT_LIMIT = 100
LONGEST = 500
WITHOUT_ID = PreviewUnit()


@router.get("/gpu-units/{name}/stack", tags=["stacks"])
async def get_unit_stack(caller: Viewer, units: Units, name: str) -> Envelope[StackView]:
    """What Pulumi has recorded of a unit."""
    return Envelope(data=await units.get_stack(caller, name))


@router.post(
    "/gpu-units/{name}/preview",
    tags=["stacks"],
    status_code=202,
    responses={200: {"description": "It waits or runs already, or was asked for with this operationID"}},
)
async def preview_unit(
    caller: WritingEditor, request: Request, units: Units, name: str, body: PreviewUnit = WITHOUT_ID
) -> Answer[Envelope[PreviewView]]:
    """Find out what Pulumi would change about a unit to make it as it was accepted. Changes nothing; the answer is a
    job."""
    limit = deps_of(request).limits.of(caller.tenant).previews
    unit = await units.get(caller, name)
    accepted = await units.previews.accept(caller, unit, body.operation_id, limit)
    return Answer(Envelope(data=accepted.item), 202 if accepted.is_new else 200)


# An operationID may have slashes.
@router.get("/gpu-units/{name}/previews/{operationID:path}", tags=["stacks"])
async def get_preview(
    caller: Viewer, units: Units, name: str, operation_id: Annotated[str, Path(alias="operationID")]
) -> Envelope[PreviewView]:
    """A preview, by the operationID that it was asked for with. Kept for an hour after its end."""
    return Envelope(data=await units.previews.get(caller, name, operation_id))


@router.get("/operator/drift", tags=["drift"])
async def get_drift(
    _: Operator, cluster: KubeCluster, drift: Drift, limit: Annotated[int, Query(ge=1, le=LONGEST)] = DEFAULT_LIMIT
) -> Envelope[DriftReport]:
    """Objects that are not as their records say, since when, and what is being done about it."""
    cluster.require_listed(cluster.units, cluster.pools, cluster.stacks)
    return Envelope(data=await build_report(cluster.client, drift, limit))
