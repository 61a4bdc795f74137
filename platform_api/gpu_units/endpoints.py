"""`/api/v1/gpu-units`."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import PlainTextResponse, Response

from gpu_platform.api_models.envelope import Envelope, Page
from gpu_platform.api_models.events import EventView
from gpu_platform.api_models.units import AddressView, CreateUnit, UnitView
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.ssh import SshContainer
from gpu_platform.domain.units import Phase, UnitChange
from gpu_platform.domain.value import Value
from platform_api.auth.access import Editor, Viewer, WritingEditor
from platform_api.deps import root_of, stream, units_of
from platform_api.gpu_units.service import UnitService
from platform_api.gpu_units.views import watch_units
from platform_api.http.bodies import answer, body_of, decoded, etag_of
from platform_api.http.streams import EVENT_STREAM
from platform_api.objects.reads import PAGE_LIMIT, LogOptions, PageToken, WaitRecorded, read_logs

BODIES: tuple[type[Value], ...] = (CreateUnit, UnitChange)

router = APIRouter(prefix="/api/v1/gpu-units", tags=["GPU units"])

Units = Annotated[UnitService, Depends(units_of)]


@router.post(
    "",
    status_code=201,
    response_model=Envelope[UnitView],
    responses={200: {"model": Envelope[UnitView], "description": "The unit of an earlier try"}},
    openapi_extra=body_of(CreateUnit),
)
async def create_unit(
    caller: WritingEditor,
    units: Units,
    request: Request,
    body: Annotated[CreateUnit, Depends(decoded(CreateUnit))],
    wait: WaitRecorded = None,
) -> Response:
    """Rent a unit. Answered when it is accepted, not when it is ready: see its `phase`."""
    accepted = await units.acceptance.accept(caller, body)
    stack_recorded = await units.recordings.wait(accepted.unit) if wait else None
    return _answer_unit(request, units, accepted.unit, 201 if accepted.is_new else 200, stack_recorded)


@router.get(
    "",
    response_model=Page[UnitView],
    responses={200: {"content": {EVENT_STREAM: {"schema": {"type": "string"}}}}},
)
async def list_units(
    caller: Viewer,
    units: Units,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT, description="Units of one page.")] = 100,
    token: PageToken = None,
    spec_name: Annotated[str | None, Query(alias="specName", pattern=r"^[a-z0-9][a-z0-9.-]{0,62}$")] = None,
    phase: Annotated[Phase | None, Query()] = None,
    watch: Annotated[bool, Query(description="Follow all of them, as server-sent events.")] = False,
    last_seen: Annotated[str | None, Header(alias="Last-Event-ID", pattern=r"^[0-9]{1,20}$")] = None,
) -> Response:
    """The tenant's units: a page of them, or (`watch=true`) every change from now on."""
    root = root_of(request)
    if watch:
        changes = watch_units(units.client, caller.namespace, last_seen, lambda unit: units.views.show(unit, root))
        # Who goes on from an event gets no list, and waits for the next change.
        return await stream(request, caller, changes, EVENT_STREAM, has_opening=last_seen is None)
    found, next_token = await units.reads.list_page(caller, limit, token, spec_name, phase)
    beside = {"continue": next_token} if next_token else {}
    return answer([units.views.show(unit, root) for unit in found], beside=beside)


@router.get("/{name}", response_model=Envelope[UnitView])
async def get_unit(caller: Viewer, units: Units, request: Request, name: str) -> Response:
    """A unit, with its ETag."""
    return _answer_unit(request, units, await units.reads.get(caller, name))


@router.put("/{name}", response_model=Envelope[UnitView], openapi_extra=body_of(UnitChange))
async def update_unit(
    caller: WritingEditor,
    units: Units,
    request: Request,
    name: str,
    body: Annotated[UnitChange, Depends(decoded(UnitChange))],
    if_match: Annotated[str | None, Header(description="Only if the unit still has this ETag.")] = None,
) -> Response:
    """Change the image, the template, the access or what is mounted. What is not said stays."""
    return _answer_unit(request, units, await units.changes.update(caller, name, body, if_match))


@router.delete("/{name}", status_code=204, response_class=Response)
async def delete_unit(
    caller: Editor,
    units: Units,
    name: str,
    if_match: Annotated[str | None, Header(description="Only if the unit has this ETag when it is asked for.")] = None,
) -> Response:
    """Give a unit back. It is Terminating until everything of it is gone."""
    await units.changes.delete(caller, name, if_match)
    return Response(status_code=204)


@router.post("/{name}/stop", response_model=Envelope[UnitView])
async def stop_unit(caller: WritingEditor, units: Units, request: Request, name: str) -> Response:
    """Free its GPUs and keep the unit."""
    return _answer_unit(request, units, await units.changes.stop(caller, name))


@router.post("/{name}/start", response_model=Envelope[UnitView])
async def start_unit(caller: WritingEditor, units: Units, request: Request, name: str) -> Response:
    """Run a stopped unit again, in the place of other stock of its spec."""
    return _answer_unit(request, units, await units.changes.start(caller, name))


@router.post("/{name}/restart", response_model=Envelope[UnitView])
async def restart_unit(caller: WritingEditor, units: Units, request: Request, name: str) -> Response:
    """Start the unit's container anew."""
    return _answer_unit(request, units, await units.changes.restart(caller, name))


@router.get("/{name}/events", response_model=Envelope[tuple[EventView, ...]])
async def list_events(caller: Viewer, units: Units, name: str) -> Response:
    """What happened to the unit and to its pod, oldest first. Kept for about an hour."""
    return answer(await units.reads.events(caller, name))


@router.get("/{name}/address", response_model=Envelope[AddressView])
async def get_address(caller: Viewer, units: Units, request: Request, name: str) -> Response:
    """Where the unit answers."""
    return answer(await units.reads.address(caller, name, root_of(request)))


@router.get("/{name}/logs", response_class=PlainTextResponse)
async def get_logs(
    caller: Viewer,
    units: Units,
    request: Request,
    name: str,
    options: Annotated[LogOptions, Depends()],
    container: Annotated[
        SshContainer | None, Query(description="Of this one beside it, where the unit has SSH.")
    ] = None,
) -> Response:
    """What the unit's container has written."""
    pod = await units.reads.get_newest_pod(caller, name)
    lines = read_logs(units.client, f"the unit {name!r}", pod, options, container.value if container else None)
    return await stream(request, caller, lines, "text/plain; charset=utf-8")


def _answer_unit(
    request: Request, units: UnitService, unit: Json, status: int = 200, stack_recorded: bool | None = None
) -> Response:
    view = units.views.show(unit, root_of(request)).model_copy(update={"stack_recorded": stack_recorded})
    return answer(view, status, {"ETag": etag_of(unit)})
