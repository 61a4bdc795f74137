"""`/api/v1/gpu-units`."""

from collections.abc import AsyncGenerator
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import PlainTextResponse, Response

from gpu_platform.domain.gpu_units import Phase
from gpu_platform.domain.tenants import Role
from gpu_platform.domain.unit_requests import UnitChange
from gpu_platform.domain.value import Value
from platform_api.deps import deps_of, root_of, units_of
from platform_api.gpu_units.logs import read_logs
from platform_api.gpu_units.schemas import AddressView, CreateUnit, EventView, Json, UnitView
from platform_api.gpu_units.service import UnitService
from platform_api.gpu_units.watching import watch_units
from platform_api.http.decoding import body_of, decoded
from platform_api.http.envelope import Envelope, Page, answer
from platform_api.http.etags import etag_of
from platform_api.http.streams import EVENT_STREAM
from platform_api.keys.access import Requires
from platform_api.keys.key_ring import Caller

BODIES: tuple[type[Value], ...] = (CreateUnit, UnitChange)

PAGE_LIMIT = 500
TAIL_LIMIT = 100_000

router = APIRouter(prefix="/api/v1/gpu-units", tags=["GPU units"])

Viewer = Annotated[Caller, Depends(Requires(Role.VIEWER))]
Editor = Annotated[Caller, Depends(Requires(Role.EDITOR))]
Units = Annotated[UnitService, Depends(units_of)]


@router.post(
    "",
    status_code=201,
    response_model=Envelope[UnitView],
    responses={200: {"model": Envelope[UnitView], "description": "The unit of an earlier try"}},
    openapi_extra=body_of(CreateUnit),
)
async def create_unit(
    caller: Editor,
    units: Units,
    request: Request,
    body: Annotated[CreateUnit, Depends(decoded(CreateUnit))],
    wait: Annotated[
        Literal["recorded"] | None, Query(description="Answer when its stack is recorded, or after 30 s.")
    ] = None,
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
    token: Annotated[str | None, Query(alias="continue", max_length=4_096, description="The next page.")] = None,
    spec_name: Annotated[str | None, Query(alias="specName", pattern=r"^[a-z0-9][a-z0-9.-]{0,62}$")] = None,
    phase: Annotated[Phase | None, Query()] = None,
    watch: Annotated[bool, Query(description="Follow all of them, as server-sent events.")] = False,
    last_seen: Annotated[str | None, Header(alias="Last-Event-ID", pattern=r"^[0-9]{1,20}$")] = None,
) -> Response:
    """The tenant's units: a page of them, or (`watch=true`) every change from now on."""
    root = root_of(request)
    if watch:
        changes = watch_units(units.client, caller.namespace, last_seen, lambda unit: units.views.show(unit, root))
        return await _stream(request, caller, changes, EVENT_STREAM)
    found, next_token = await units.reads.list_page(caller, limit, token, spec_name, phase)
    beside = {"continue": next_token} if next_token else {}
    return answer([units.views.show(unit, root) for unit in found], beside=beside)


@router.get("/{name}", response_model=Envelope[UnitView])
async def get_unit(caller: Viewer, units: Units, request: Request, name: str) -> Response:
    """A unit, with its ETag."""
    return _answer_unit(request, units, await units.reads.get(caller, name))


@router.put("/{name}", response_model=Envelope[UnitView], openapi_extra=body_of(UnitChange))
async def update_unit(
    caller: Editor,
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
async def stop_unit(caller: Editor, units: Units, request: Request, name: str) -> Response:
    """Free its GPUs and keep the unit."""
    return _answer_unit(request, units, await units.changes.stop(caller, name))


@router.post("/{name}/start", response_model=Envelope[UnitView])
async def start_unit(caller: Editor, units: Units, request: Request, name: str) -> Response:
    """Run a stopped unit again, in the place of other stock of its spec."""
    return _answer_unit(request, units, await units.changes.start(caller, name))


@router.post("/{name}/restart", response_model=Envelope[UnitView])
async def restart_unit(caller: Editor, units: Units, request: Request, name: str) -> Response:
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
    follow: Annotated[bool, Query(description="Go on as it grows.")] = False,
    tail: Annotated[int | None, Query(ge=0, le=TAIL_LIMIT, description="Only the last lines.")] = None,
    previous: Annotated[bool, Query(description="Of the container before the last restart.")] = False,
    timestamps: Annotated[bool, Query(description="With the time of each line.")] = False,
) -> Response:
    """What the unit's container has written."""
    unit = await units.reads.get(caller, name)
    flags = {"follow": follow, "previous": previous, "timestamps": timestamps}
    options = {flag: "true" for flag, is_set in flags.items() if is_set}
    if tail is not None:
        options["tailLines"] = str(tail)
    lines = read_logs(units.client, unit, await units.reads.pods_of(unit), options)
    return await _stream(request, caller, lines, "text/plain; charset=utf-8")


def _answer_unit(
    request: Request, units: UnitService, unit: Json, status: int = 200, stack_recorded: bool | None = None
) -> Response:
    view = units.views.show(unit, root_of(request)).model_copy(update={"stack_recorded": stack_recorded})
    return answer(view, status, {"ETag": etag_of(unit)})


async def _stream(request: Request, caller: Caller, parts: AsyncGenerator[bytes, None], media_type: str) -> Response:
    deps = deps_of(request)
    return await deps.streams.respond(parts, media_type, caller.tenant, lambda: deps.key_ring.knows(caller))
