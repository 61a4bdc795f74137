"""`/api/v1/serverless/functions`."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import PlainTextResponse, Response

from gpu_platform.api_models.envelope import Envelope, Page
from gpu_platform.api_models.functions import CreateFunction, FunctionHealth, FunctionView
from gpu_platform.api_models.stacks import StackView
from gpu_platform.domain.functions import FunctionChange
from gpu_platform.domain.value import Value
from platform_api.auth.access import Editor, Viewer, WritingEditor
from platform_api.deps import deps_of, functions_of, stream
from platform_api.functions.service import FunctionService
from platform_api.functions.views import FunctionLogOptions, read_function_logs, view_function
from platform_api.http.bodies import answer, body_of, decoded, etag_of
from platform_api.objects.reads import PAGE_LIMIT, PageToken, WaitRecorded
from platform_api.stacks.service import get_stack

BODIES: tuple[type[Value], ...] = (CreateFunction, FunctionChange)

router = APIRouter(prefix="/api/v1/serverless/functions", tags=["functions"])

Functions = Annotated[FunctionService, Depends(functions_of)]


@router.post(
    "",
    status_code=201,
    response_model=Envelope[FunctionView],
    responses={200: {"model": Envelope[FunctionView], "description": "The function of an earlier try"}},
    openapi_extra=body_of(CreateFunction),
)
async def create_function(
    caller: WritingEditor,
    functions: Functions,
    body: Annotated[CreateFunction, Depends(decoded(CreateFunction))],
    wait: WaitRecorded = None,
) -> Response:
    """Declare a function. It takes calls from now on; see its `phase` for how its workers are."""
    accepted = await functions.acceptance.accept(caller, body)
    stack_recorded = await functions.recordings.wait(accepted.item) if wait else None
    return _shown(accepted.item, 201 if accepted.is_new else 200, stack_recorded)


@router.get("", response_model=Page[FunctionView])
async def list_functions(
    caller: Viewer,
    functions: Functions,
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT, description="Functions of one page.")] = 100,
    token: PageToken = None,
) -> Response:
    """The tenant's functions, page by page."""
    found, next_token = await functions.list_page(caller, limit, token)
    beside = {"continue": next_token} if next_token else {}
    return answer([view_function(function) for function in found], beside=beside)


@router.get("/{name}", response_model=Envelope[FunctionView])
async def get_function(caller: Viewer, functions: Functions, name: str) -> Response:
    """A function, with its ETag."""
    return _shown(await functions.get(caller, name))


@router.put("/{name}", response_model=Envelope[FunctionView], openapi_extra=body_of(FunctionChange))
async def change_function(
    caller: WritingEditor,
    functions: Functions,
    name: str,
    body: Annotated[FunctionChange, Depends(decoded(FunctionChange))],
    if_match: Annotated[str | None, Header(description="Only if the function still has this ETag.")] = None,
) -> Response:
    """Change what is said; what is not said stays. Its workers are made anew where that is needed."""
    return _shown(await functions.update(caller, name, body, if_match))


@router.delete("/{name}", status_code=204, response_class=Response)
async def delete_function(
    caller: Editor,
    functions: Functions,
    name: str,
    if_match: Annotated[
        str | None, Header(description="Only if the function has this ETag when it is asked for.")
    ] = None,
) -> Response:
    """Take a function away, and its workers with it. It is Terminating until all of that is gone."""
    await functions.delete(caller, name, if_match)
    return Response(status_code=204)


@router.get("/{name}/stack", response_model=Envelope[StackView])
async def get_function_stack(caller: Viewer, functions: Functions, name: str) -> Response:
    """What Pulumi has recorded of a function."""
    return answer(await get_stack(functions.client, await functions.get(caller, name), "function"))


@router.get("/{name}/health", response_model=Envelope[FunctionHealth])
async def get_function_health(caller: Viewer, functions: Functions, name: str) -> Response:
    """Whether its calls are answered just now. Says so also while NATS is away."""
    return answer(await functions.health.read(caller, await functions.get(caller, name)))


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


def _shown(function: dict[str, Any], status: int = 200, stack_recorded: bool | None = None) -> Response:
    view = view_function(function).model_copy(update={"stack_recorded": stack_recorded})
    return answer(view, status, {"ETag": etag_of(function)})
