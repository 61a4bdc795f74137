"""`/api/v1/serverless/invocations`, `/dead-letters`, and the queue of a function."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.responses import Response

from gpu_platform.api_models.envelope import Envelope, Page
from gpu_platform.api_models.invocations import FunctionName, InvocationView, Invoke, Purged, Redrive, Redriven
from gpu_platform.domain.invocations import INVOCATION_ID, InvocationState, Mode
from gpu_platform.domain.tenants import Role
from platform_api.auth.access import Editor, Invoker, Requires
from platform_api.auth.keys import Caller
from platform_api.deps import Invocations, stream
from platform_api.http.bodies import encode_json, read_json_body
from platform_api.http.routes import Answer, BodyOf, Route
from platform_api.http.streams import EVENT_STREAM
from platform_api.invocations.limits import PATH
from platform_api.invocations.reads import Shown
from platform_api.objects.reads import PAGE_LIMIT

router = APIRouter(prefix="/api/v1/serverless", tags=["invocations"], route_class=Route)

Reader = Annotated[Caller, Depends(Requires(Role.VIEWER, Role.INVOKER))]
OneID = Annotated[str, Path(alias="invocationID", pattern=f"^{INVOCATION_ID.pattern}$")]
Limit = Annotated[int, Query(ge=1, le=PAGE_LIMIT, description="Calls of one page.")]
Cursor = Annotated[str | None, Query(alias="continue", pattern=r"^[0-9]{1,18}$", description="The next page.")]
ANY_DEAD_LETTER = Redrive()
OfFunction = Annotated[FunctionName | None, Query(description="Only calls of this function.")]


@router.post(
    "/invocations",
    status_code=202,
    responses={200: {"description": "It is over (sync), or was accepted before"}},
)
async def invoke_function(
    caller: Invoker, invocations: Invocations, request: Annotated[Request, BodyOf(Invoke)]
) -> Answer[Envelope[InvocationView]]:
    """Call a function. Once accepted, a call is never lost and has one end, under its id."""
    asked = await invocations.read(caller, await read_json_body(request))
    if asked.fields.mode is Mode.SYNC:
        shown, is_over = await invocations.invoke_and_wait(caller, asked)
        return _shown(shown, 200 if is_over else 202, _location(shown.view))
    shown, is_new = await invocations.invoke(caller, asked)
    return _shown(shown, 202 if is_new else 200, _location(shown.view))


@router.get("/invocations", responses={200: {"content": {EVENT_STREAM: {"schema": {"type": "string"}}}}})
async def list_invocations(
    caller: Reader,
    invocations: Invocations,
    request: Request,
    function: OfFunction = None,
    state: Annotated[InvocationState | None, Query()] = None,
    limit: Limit = 100,
    token: Cursor = None,
    watch: Annotated[bool, Query(description="Follow all of them, as server-sent events.")] = False,
    last_seen: Annotated[str | None, Header(alias="Last-Event-ID", pattern=r"^[0-9]{1,18}$")] = None,
) -> Page[InvocationView] | Response:
    """The tenant's calls, the one that changed longest ago first; or (`watch=true`) every change from now on. A page
    may be empty and still have a next one. Bodies of results are in the view of one call."""
    if watch:
        changes = invocations.watch(caller, function, last_seen)
        return await stream(request, caller, changes, EVENT_STREAM, has_opening=True)
    return await invocations.list_page(caller, token, limit, function, state)


@router.get("/invocations/{invocationID}")
async def get_invocation(
    caller: Reader, invocations: Invocations, invocation_id: OneID
) -> Answer[Envelope[InvocationView]]:
    """A call, with its result once it is over."""
    return _shown(await invocations.get(caller, invocation_id))


@router.post("/invocations/{invocationID}/cancel")
async def cancel_invocation(
    caller: Invoker, invocations: Invocations, invocation_id: OneID
) -> Envelope[InvocationView]:
    """End a call. One that waits never runs; one that runs is asked to end."""
    return Envelope(data=await invocations.cancel(caller, invocation_id))


@router.delete("/invocations/{invocationID}")
async def delete_invocation(
    caller: Invoker, invocations: Invocations, invocation_id: OneID
) -> Envelope[InvocationView]:
    """Delete an invocation that is over, with its payload and result. Its id is free again."""
    return Envelope(data=await invocations.delete(caller, invocation_id))


@router.post(
    "/invocations/{invocationID}/retry", status_code=202, responses={200: {"description": "It was tried again before"}}
)
async def retry_invocation(
    caller: Invoker, invocations: Invocations, invocation_id: OneID
) -> Answer[Envelope[InvocationView]]:
    """Make an ended call once more, as a new one. Asked for twice, it is still one."""
    view, is_new = await invocations.retry(caller, invocation_id)
    return Answer(Envelope(data=view), 202 if is_new else 200, _location(view))


@router.get("/dead-letters")
async def list_dead_letters(
    caller: Reader, invocations: Invocations, function: OfFunction = None, limit: Limit = 100, token: Cursor = None
) -> Page[InvocationView]:
    """Calls that no worker could answer, however often it was tried."""
    return await invocations.list_page(caller, token, limit, function, InvocationState.DEAD_LETTERED)


@router.post("/dead-letters/redrive")
async def redrive_dead_letters(
    caller: Editor, invocations: Invocations, body: Redrive = ANY_DEAD_LETTER
) -> Envelope[Redriven]:
    """Try dead letters again, each as a new call. Each is tried again once."""
    return Envelope(data=await invocations.redrive(caller, body))


@router.delete("/functions/{name}/queue")
async def purge_queue(
    caller: Editor, invocations: Invocations, name: Annotated[FunctionName, Path()]
) -> Envelope[Purged]:
    """Cancel all calls of a function that wait. Those that run go on."""
    return Envelope(data=Purged(cancelled=await invocations.purge(caller, name)))


def _location(view: InvocationView) -> dict[str, str]:
    return {"Location": f"{PATH}/{view.invocation_id}"}


def _shown(
    shown: Shown, status: int | None = None, headers: dict[str, str] | None = None
) -> Answer[Envelope[InvocationView]]:
    """The body of a large result is put in as it was stored: the view is written around it."""
    envelope = Envelope(data=shown.view)
    if shown.result_body is None or shown.view.result is None:
        return Answer(envelope, status, headers or {})
    outer = encode_json(shown.view.model_copy(update={"result": None}).to_json())
    inner = encode_json(shown.view.result.to_json())
    parts = (b'{"data":', outer[:-1], b',"result":', inner[:-1], b',"body":', shown.result_body, b"}}}")
    return Answer(envelope, status, headers or {}, b"".join(parts))
