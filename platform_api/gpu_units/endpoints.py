"""`/api/v1/gpu-units`."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import PlainTextResponse, Response

from gpu_platform.api_models.envelope import Envelope, Page
from gpu_platform.api_models.events import EventView
from gpu_platform.api_models.units import AddressView, CreateUnit, UnitMetricsView, UnitView
from gpu_platform.domain.ssh import SshContainer
from gpu_platform.domain.units import Phase, UnitChange
from platform_api.auth.access import Editor, Viewer, WritingEditor
from platform_api.deps import Root, Units, deps_of, stream
from platform_api.gpu_units.views import view_gpu, watch_units
from platform_api.health.gpu_readings import select_pods
from platform_api.http.routes import Answer, Route
from platform_api.http.streams import EVENT_STREAM
from platform_api.objects.reads import PAGE_LIMIT, LogOptions, PageToken, WaitRecorded, build_phase_selectors, read_logs
from platform_api.objects.service import answer_object

router = APIRouter(prefix="/api/v1/gpu-units", tags=["GPU units"], route_class=Route)


@router.post("", status_code=201, responses={200: {"description": "The unit of an earlier try"}})
async def create_unit(
    caller: WritingEditor, units: Units, root: Root, body: CreateUnit, wait: WaitRecorded = None
) -> Answer[Envelope[UnitView]]:
    """Rent a unit. Answered when it is accepted, not when it is ready: see its `phase`."""
    accepted = await units.acceptance.accept(caller, body)
    stack_recorded = await units.recordings.wait(accepted.item) if wait else None
    return answer_object(
        accepted.item, units.targets.show(accepted.item, root), 201 if accepted.is_new else 200, stack_recorded
    )


@router.get("", responses={200: {"content": {EVENT_STREAM: {"schema": {"type": "string"}}}}})
async def list_units(
    caller: Viewer,
    units: Units,
    root: Root,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT, description="Units of one page.")] = 100,
    token: PageToken = None,
    spec_name: Annotated[str | None, Query(alias="specName", pattern=r"^[a-z0-9][a-z0-9.-]{0,62}$")] = None,
    phase: Annotated[Phase | None, Query()] = None,
    watch: Annotated[bool, Query(description="Follow all of them, as server-sent events.")] = False,
    last_seen: Annotated[str | None, Header(alias="Last-Event-ID", pattern=r"^[0-9]{1,20}$")] = None,
) -> Page[UnitView] | Response:
    """The tenant's units: a page of them, or (`watch=true`) every change from now on."""
    if watch:
        changes = watch_units(units.client, caller.namespace, last_seen, lambda unit: units.targets.show(unit, root))
        # Who goes on from an event gets no list, and waits for the next change.
        return await stream(request, caller, changes, EVENT_STREAM, has_opening=last_seen is None)
    by_spec = [f"spec.specName={spec_name}"] if spec_name else []
    selectors = [*by_spec, *build_phase_selectors(phase, Phase.PENDING)]
    found, next_token = await units.list_page(caller, limit, token, selectors)
    return Page(data=tuple(units.targets.show(unit, root) for unit in found), continue_=next_token)


@router.get("/{name}")
async def get_unit(caller: Viewer, units: Units, root: Root, name: str) -> Answer[Envelope[UnitView]]:
    """A unit, with its ETag."""
    unit = await units.get(caller, name)
    return answer_object(unit, units.targets.show(unit, root))


@router.put("/{name}")
async def update_unit(
    caller: WritingEditor,
    units: Units,
    root: Root,
    name: str,
    body: UnitChange,
    if_match: Annotated[str | None, Header(description="Only if the unit still has this ETag.")] = None,
) -> Answer[Envelope[UnitView]]:
    """Change the image, the template, the access or what is mounted. What is not said stays."""
    unit = await units.update(caller, name, body, if_match)
    return answer_object(unit, units.targets.show(unit, root))


@router.delete("/{name}", status_code=204)
async def delete_unit(
    caller: Editor,
    units: Units,
    name: str,
    if_match: Annotated[str | None, Header(description="Only if the unit has this ETag when it is asked for.")] = None,
) -> None:
    """Give a unit back. It is Terminating until everything of it is gone."""
    await units.delete(caller, name, if_match)


@router.post("/{name}/stop")
async def stop_unit(caller: WritingEditor, units: Units, root: Root, name: str) -> Answer[Envelope[UnitView]]:
    """Free its GPUs and keep the unit."""
    unit = await units.stop(caller, name)
    return answer_object(unit, units.targets.show(unit, root))


@router.post("/{name}/start")
async def start_unit(caller: WritingEditor, units: Units, root: Root, name: str) -> Answer[Envelope[UnitView]]:
    """Run a stopped unit again, in the place of other stock of its spec."""
    unit = await units.start(caller, name)
    return answer_object(unit, units.targets.show(unit, root))


@router.post("/{name}/restart")
async def restart_unit(caller: WritingEditor, units: Units, root: Root, name: str) -> Answer[Envelope[UnitView]]:
    """Start the unit's container anew."""
    unit = await units.restart(caller, name)
    return answer_object(unit, units.targets.show(unit, root))


@router.get("/{name}/events")
async def list_unit_events(caller: Viewer, units: Units, name: str) -> Envelope[tuple[EventView, ...]]:
    """What happened to the unit and to its pod, oldest first. Kept for about an hour."""
    return Envelope(data=tuple(await units.events(caller, name)))


@router.get("/{name}/address")
async def get_unit_address(caller: Viewer, units: Units, root: Root, name: str) -> Envelope[AddressView]:
    """Where the unit answers."""
    return Envelope(data=await units.address(caller, name, root))


@router.get("/{name}/logs", response_class=PlainTextResponse)
async def get_unit_logs(
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
    pod = await units.get_newest_pod(caller, name)
    lines = read_logs(units.client, f"the unit {name!r}", pod, options, container.value if container else None)
    return await stream(request, caller, lines, "text/plain; charset=utf-8")


@router.get("/{name}/metrics")
async def get_unit_metrics(caller: Viewer, units: Units, request: Request, name: str) -> Envelope[UnitMetricsView]:
    """How busy the unit's GPUs are, and how much of their memory is used: a few seconds old at most."""
    unit = await units.get(caller, name)
    read_at, readings = deps_of(request).gpus.require_readings()
    pods = [pod["metadata"]["name"] for pod in await units.pods_of(unit)]
    devices = tuple(map(view_gpu, select_pods(readings, caller.namespace, pods)))
    return Envelope(data=UnitMetricsView(unit=name, read_at=read_at, devices=devices))
