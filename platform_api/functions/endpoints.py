"""`/api/v1/serverless/functions`."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import PlainTextResponse, Response

from gpu_platform.api_models.envelope import Envelope, Page
from gpu_platform.api_models.functions import CreateFunction, FunctionHealth, FunctionView
from gpu_platform.api_models.stacks import StackView
from gpu_platform.domain.functions import FunctionChange
from platform_api.auth.access import Editor, Viewer, WritingEditor
from platform_api.deps import Functions, deps_of, stream
from platform_api.functions.views import FunctionLogOptions, read_function_logs, view_function
from platform_api.http.routes import Answer, Route
from platform_api.objects.reads import PAGE_LIMIT, PageToken, WaitRecorded
from platform_api.objects.service import answer_object

router = APIRouter(prefix="/api/v1/serverless/functions", tags=["functions"], route_class=Route)


@router.post("", status_code=201, responses={200: {"description": "The function of an earlier try"}})
async def create_function(
    caller: WritingEditor, functions: Functions, body: CreateFunction, wait: WaitRecorded = None
) -> Answer[Envelope[FunctionView]]:
    """Declare a function. It takes calls from now on; see its `phase` for how its workers are."""
    accepted = await functions.accept(caller, body)
    stack_recorded = await functions.recordings.wait(accepted.item) if wait else None
    return answer_object(accepted.item, view_function(accepted.item), 201 if accepted.is_new else 200, stack_recorded)


@router.get("")
async def list_functions(
    caller: Viewer,
    functions: Functions,
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT, description="Functions of one page.")] = 100,
    token: PageToken = None,
) -> Page[FunctionView]:
    """The tenant's functions, page by page."""
    found, next_token = await functions.list_page(caller, limit, token)
    return Page(data=tuple(map(view_function, found)), continue_=next_token)


@router.get("/{name}")
async def get_function(caller: Viewer, functions: Functions, name: str) -> Answer[Envelope[FunctionView]]:
    """A function, with its ETag."""
    function = await functions.get(caller, name)
    return answer_object(function, view_function(function))


@router.put("/{name}")
async def update_function(
    caller: WritingEditor,
    functions: Functions,
    name: str,
    body: FunctionChange,
    if_match: Annotated[str | None, Header(description="Only if the function still has this ETag.")] = None,
) -> Answer[Envelope[FunctionView]]:
    """Change what is said; what is not said stays. Its workers are made anew where that is needed."""
    function = await functions.update(caller, name, body, if_match)
    return answer_object(function, view_function(function))


@router.delete("/{name}", status_code=204)
async def delete_function(
    caller: Editor,
    functions: Functions,
    name: str,
    if_match: Annotated[
        str | None, Header(description="Only if the function has this ETag when it is asked for.")
    ] = None,
) -> None:
    """Take a function away, and its workers with it. It is Terminating until all of that is gone."""
    await functions.delete(caller, name, if_match)


@router.get("/{name}/stack")
async def get_function_stack(caller: Viewer, functions: Functions, name: str) -> Envelope[StackView]:
    """What Pulumi has recorded of a function."""
    return Envelope(data=await functions.get_stack(caller, name))


@router.get("/{name}/health")
async def get_function_health(caller: Viewer, functions: Functions, name: str) -> Envelope[FunctionHealth]:
    """Whether its calls are answered just now. Says so also while NATS is away."""
    return Envelope(data=await functions.health.read(caller, await functions.get(caller, name)))


@router.get("/{name}/logs", response_class=PlainTextResponse)
async def get_function_logs(
    caller: Viewer,
    functions: Functions,
    request: Request,
    name: str,
    options: Annotated[FunctionLogOptions, Depends()],
) -> Response:
    """The last lines that its workers have written, also of workers that are gone, for a day. Of each worker 500 lines
    or 64 KiB; of the workers that are gone, the last 32."""
    await functions.get(caller, name)
    lines = read_function_logs(deps_of(request).queue, caller.tenant, name, options)
    return await stream(request, caller, lines, "text/plain; charset=utf-8")
