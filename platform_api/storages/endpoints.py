"""`/api/v1/gpu-storages`."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import PlainTextResponse, Response

from gpu_platform.api_models.envelope import Envelope, Page
from gpu_platform.api_models.events import EventView
from gpu_platform.api_models.stacks import StackView
from gpu_platform.api_models.storages import CreateStorage, RecoverStorage, StorageView
from gpu_platform.domain.storages import StorageChange, StoragePhase
from gpu_platform.domain.value import Value
from platform_api.auth.access import Editor, Viewer, WritingEditor
from platform_api.deps import root_of, storages_of, stream
from platform_api.http.bodies import answer, body_of, decoded, etag_of
from platform_api.objects.reads import PAGE_LIMIT, LogOptions, PageToken, WaitRecorded, read_logs
from platform_api.stacks.service import get_stack
from platform_api.storages.service import StorageService
from platform_api.storages.views import Speaker, get_speaking_pod, read_storage_events

BODIES: tuple[type[Value], ...] = (CreateStorage, StorageChange, RecoverStorage)

router = APIRouter(prefix="/api/v1/gpu-storages", tags=["GPU storages"])

Storages = Annotated[StorageService, Depends(storages_of)]


@router.post(
    "",
    status_code=201,
    response_model=Envelope[StorageView],
    responses={200: {"model": Envelope[StorageView], "description": "The storage of an earlier try"}},
    openapi_extra=body_of(CreateStorage),
)
async def create_storage(
    caller: WritingEditor,
    storages: Storages,
    request: Request,
    body: Annotated[CreateStorage, Depends(decoded(CreateStorage))],
    wait: WaitRecorded = None,
) -> Response:
    """Make a storage. Answered when it is accepted, not when it is ready: see its `phase`."""
    accepted = await storages.acceptance.accept(caller, body)
    stack_recorded = await storages.recordings.wait(accepted.item) if wait else None
    return _shown(request, storages, accepted.item, 201 if accepted.is_new else 200, stack_recorded)


@router.get("", response_model=Page[StorageView])
async def list_storages(
    caller: Viewer,
    storages: Storages,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT, description="Storages of one page.")] = 100,
    token: PageToken = None,
    phase: Annotated[StoragePhase | None, Query()] = None,
) -> Response:
    """The tenant's storages, page by page."""
    found, next_token = await storages.list_page(caller, limit, token, phase)
    beside = {"continue": next_token} if next_token else {}
    root = root_of(request)
    return answer([storages.show(storage, root) for storage in found], beside=beside)


@router.get("/{name}", response_model=Envelope[StorageView])
async def get_storage(caller: Viewer, storages: Storages, request: Request, name: str) -> Response:
    """A storage, with its ETag."""
    return _shown(request, storages, await storages.get(caller, name))


@router.put("/{name}", response_model=Envelope[StorageView], openapi_extra=body_of(StorageChange))
async def change_storage(
    caller: WritingEditor,
    storages: Storages,
    request: Request,
    name: str,
    body: Annotated[StorageChange, Depends(decoded(StorageChange))],
    if_match: Annotated[str | None, Header(description="Only if the storage still has this ETag.")] = None,
) -> Response:
    """Let it grow, open or close its file browser, keep its data at the end or not. What is not said stays."""
    return _shown(request, storages, await storages.update(caller, name, body, if_match))


@router.post("/{name}/recover", response_model=Envelope[StorageView], openapi_extra=body_of(RecoverStorage))
async def recover_storage(
    caller: WritingEditor,
    storages: Storages,
    request: Request,
    name: str,
    body: Annotated[RecoverStorage, Depends(decoded(RecoverStorage))],
) -> Response:
    """Prepare a storage once more, after its preparation has failed and while nobody mounts it."""
    return _shown(request, storages, await storages.recoveries.accept(caller, name, body.operation_id))


@router.delete("/{name}", status_code=204, response_class=Response)
async def delete_storage(
    caller: Editor,
    storages: Storages,
    name: str,
    if_match: Annotated[
        str | None, Header(description="Only if the storage has this ETag when it is asked for.")
    ] = None,
) -> Response:
    """Take a storage away, and its data with it unless it is to be retained. Refused while a unit mounts it."""
    await storages.delete(caller, name, if_match)
    return Response(status_code=204)


@router.get("/{name}/stack", response_model=Envelope[StackView])
async def get_storage_stack(caller: Viewer, storages: Storages, name: str) -> Response:
    """What Pulumi has recorded of a storage."""
    return answer(await get_stack(storages.client, await storages.get(caller, name), "storage"))


@router.get("/{name}/events", response_model=Envelope[tuple[EventView, ...]])
async def list_storage_events(caller: Viewer, storages: Storages, name: str) -> Response:
    """What happened to the storage, its claim, its preparation and its pods, oldest first. Kept for about an hour."""
    return answer(await read_storage_events(storages.client, await storages.get(caller, name)))


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


def _shown(
    request: Request,
    storages: StorageService,
    storage: dict[str, Any],
    status: int = 200,
    stack_recorded: bool | None = None,
) -> Response:
    view = storages.show(storage, root_of(request)).model_copy(update={"stack_recorded": stack_recorded})
    return answer(view, status, {"ETag": etag_of(storage)})
