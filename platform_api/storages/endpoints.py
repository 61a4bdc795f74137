"""`/api/v1/gpu-storages`."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import PlainTextResponse, Response

from gpu_platform.api_models.envelope import Envelope, Page
from gpu_platform.api_models.events import EventView
from gpu_platform.api_models.stacks import StackView
from gpu_platform.api_models.storages import CreateStorage, RecoverStorage, StorageView
from gpu_platform.domain.storages import StorageChange, StoragePhase
from platform_api.auth.access import Editor, Viewer, WritingEditor
from platform_api.deps import Root, Storages, stream
from platform_api.http.routes import Answer, Route
from platform_api.objects.reads import PAGE_LIMIT, LogOptions, PageToken, WaitRecorded, build_phase_selectors, read_logs
from platform_api.objects.service import answer_object
from platform_api.storages.views import Speaker, get_speaking_pod, read_storage_events

router = APIRouter(prefix="/api/v1/gpu-storages", tags=["GPU storages"], route_class=Route)


@router.post("", status_code=201, responses={200: {"description": "The storage of an earlier try"}})
async def create_storage(
    caller: WritingEditor, storages: Storages, root: Root, body: CreateStorage, wait: WaitRecorded = None
) -> Answer[Envelope[StorageView]]:
    """Make a storage. Answered when it is accepted, not when it is ready: see its `phase`."""
    accepted = await storages.accept(caller, body)
    stack_recorded = await storages.recordings.wait(accepted.item) if wait else None
    return answer_object(
        accepted.item, storages.targets.show(accepted.item, root), 201 if accepted.is_new else 200, stack_recorded
    )


@router.get("")
async def list_storages(
    caller: Viewer,
    storages: Storages,
    root: Root,
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT, description="Storages of one page.")] = 100,
    token: PageToken = None,
    phase: Annotated[StoragePhase | None, Query()] = None,
) -> Page[StorageView]:
    """The tenant's storages, page by page."""
    selectors = build_phase_selectors(phase, StoragePhase.PENDING)
    found, next_token = await storages.list_page(caller, limit, token, selectors)
    return Page(data=tuple(storages.targets.show(storage, root) for storage in found), continue_=next_token)


@router.get("/{name}")
async def get_storage(caller: Viewer, storages: Storages, root: Root, name: str) -> Answer[Envelope[StorageView]]:
    """A storage, with its ETag."""
    storage = await storages.get(caller, name)
    return answer_object(storage, storages.targets.show(storage, root))


@router.put("/{name}")
async def update_storage(
    caller: WritingEditor,
    storages: Storages,
    root: Root,
    name: str,
    body: StorageChange,
    if_match: Annotated[str | None, Header(description="Only if the storage still has this ETag.")] = None,
) -> Answer[Envelope[StorageView]]:
    """Let it grow, open or close its file browser, keep its data at the end or not. What is not said stays."""
    storage = await storages.update(caller, name, body, if_match)
    return answer_object(storage, storages.targets.show(storage, root))


@router.post("/{name}/recover")
async def recover_storage(
    caller: WritingEditor, storages: Storages, root: Root, name: str, body: RecoverStorage
) -> Answer[Envelope[StorageView]]:
    """Prepare a storage once more, after its preparation has failed and while nobody mounts it."""
    storage = await storages.recover(caller, name, body.operation_id)
    return answer_object(storage, storages.targets.show(storage, root))


@router.delete("/{name}", status_code=204)
async def delete_storage(
    caller: Editor,
    storages: Storages,
    name: str,
    if_match: Annotated[
        str | None, Header(description="Only if the storage has this ETag when it is asked for.")
    ] = None,
) -> None:
    """Take a storage away, and its data with it unless it is to be retained. Refused while a unit mounts it."""
    await storages.delete(caller, name, if_match)


@router.get("/{name}/stack")
async def get_storage_stack(caller: Viewer, storages: Storages, name: str) -> Envelope[StackView]:
    """What Pulumi has recorded of a storage."""
    return Envelope(data=await storages.get_stack(caller, name))


@router.get("/{name}/events")
async def list_storage_events(caller: Viewer, storages: Storages, name: str) -> Envelope[tuple[EventView, ...]]:
    """What happened to the storage, its claim, its preparation and its pods, oldest first. Kept for about an hour."""
    return Envelope(data=tuple(await read_storage_events(storages.client, await storages.get(caller, name))))


@router.get("/{name}/logs", response_class=PlainTextResponse)
async def get_storage_logs(
    caller: Viewer,
    storages: Storages,
    request: Request,
    name: str,
    options: Annotated[LogOptions, Depends()],
    speaker: Annotated[Speaker, Query(alias="of", description="Of what prepares it, or of its file browser.")] = (
        "preparation"
    ),
) -> Response:
    """What the storage's preparation has written, for a day after its end; or its file browser. Of a copy, that is kept
    if it failed, and until its source is deleted."""
    pod = await get_speaking_pod(storages.client, await storages.get(caller, name), speaker)
    lines = read_logs(storages.client, f"the {speaker} of the storage {name!r}", pod, options)
    return await stream(request, caller, lines, "text/plain; charset=utf-8")
