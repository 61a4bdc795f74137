"""Functions as their tenants see them: the object, its health (workers from its status, calls from the queue, if that
can be asked), and what its workers have written, also those that are gone.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Query

from gpu_platform.api_models.functions import FunctionHealth, FunctionView, HealthState
from gpu_platform.domain.functions import FunctionPhase, FunctionReason, GPUFunctionSpec, GPUFunctionStatus
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.value import fields_of
from gpu_platform.domain.worker_logs import appended, merge_logs, text_of
from gpu_platform.nats.errors import QueueUnavailableError
from gpu_platform.nats.streams import Backlog
from gpu_platform.nats.worker_logs import WorkerLog, list_logs
from platform_api.auth.keys import Caller
from platform_api.http.errors import conflict, unavailable
from platform_api.nats_connection import QueueLink
from platform_api.objects.reads import TAIL_LIMIT, view_common

log = logging.getLogger(__name__)

QUEUE_SECONDS = 1.5
"""For the queue to answer."""

ReadBacklog = Callable[[str, str], Coroutine[Any, Any, Backlog]]
"""By tenant and function. QueueUnavailableError: nobody can say. A function that has no queue yet has no calls."""

NO_ANSWER = "NATS does not answer just now; calls that were accepted are kept"

LOOK_SECONDS = 1.0
"""Between two looks at what is followed: entries are written once a second."""


def view_function(function: Json) -> FunctionView:
    spec = GPUFunctionSpec.model_validate(function["spec"])
    status = GPUFunctionStatus.of(function)
    common = view_common(function, status, FunctionView, FunctionPhase.PROGRESSING)
    return FunctionView(**(common | fields_of(spec, FunctionView)))


class FunctionHealthReads:
    def __init__(self, read_backlog: ReadBacklog | None) -> None:
        """None: this API has no queue."""
        self._read_backlog = read_backlog
        self._asking: set[asyncio.Task[Backlog]] = set()

    async def read(self, caller: Caller, function: Json) -> FunctionHealth:
        view = view_function(function)
        if self._read_backlog is None:
            return build_health(view, None, "this API runs without NATS: natsURL is not set")
        return build_health(view, await self._wait_for(self._read_backlog(caller.tenant, view.name)), NO_ANSWER)

    async def _wait_for(self, answer: Coroutine[Any, Any, Backlog]) -> Backlog | None:
        # Left alone when it takes too long, not cancelled: NATS' client does not stand that.
        task = asyncio.create_task(answer)
        self._asking.add(task)
        task.add_done_callback(self._forget)
        await asyncio.wait({task}, timeout=QUEUE_SECONDS)
        return task.result() if task.done() and task.exception() is None else None

    def _forget(self, task: asyncio.Task[Backlog]) -> None:
        self._asking.discard(task)
        if not task.cancelled() and (error := task.exception()) and not isinstance(error, QueueUnavailableError):
            log.error("functions.count-failed", exc_info=error)


def build_health(view: FunctionView, count: Backlog | None, absence: str) -> FunctionHealth:
    """Rows from top to bottom.

    | queue             | function                         | state             |
    | ----------------- | -------------------------------- | ----------------- |
    | cannot be asked   | any                              | queue_unavailable |
    | any               | its reason is QueueUnavailable   | queue_unavailable |
    | any               | Failed                           | failing           |
    | any               | some worker is ready             | ready             |
    | any               | no workers, and none are wanted  | cold              |
    | any               | any other                        | starting          |
    """
    health = FunctionHealth(
        state=_state_of(view, count),
        reason=view.reason,
        message=view.message,
        workers=view.workers,
        ready_workers=view.ready_workers,
        waiting=count.waiting if count else None,
        running=count.running if count else None,
    )
    if count is not None:
        return health
    return health.model_copy(update={"reason": FunctionReason.QUEUE_UNAVAILABLE.value, "message": absence})


def _state_of(view: FunctionView, count: Backlog | None) -> HealthState:
    if count is None or view.reason == FunctionReason.QUEUE_UNAVAILABLE:
        return HealthState.QUEUE_UNAVAILABLE
    if view.phase is FunctionPhase.FAILED:
        return HealthState.FAILING
    if view.ready_workers:
        return HealthState.READY
    return HealthState.STARTING if view.workers or view.min_workers else HealthState.COLD


@dataclass(frozen=True)
class FunctionLogOptions:
    """How much of it a caller wants."""

    follow: Annotated[bool, Query(description="Go on as it grows.")] = False
    tail: Annotated[int | None, Query(ge=0, le=TAIL_LIMIT, description="Only the last lines.")] = None
    timestamps: Annotated[bool, Query(description="With the time of each line.")] = False
    worker: Annotated[
        str | None,
        Query(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", description="Of this worker only, without its name."),
    ] = None


async def read_function_logs(
    link: QueueLink, tenant: str, function: str, options: FunctionLogOptions
) -> AsyncGenerator[bytes, None]:
    try:
        found = await list_logs(link.js, tenant, function, options.worker or "*")
    except QueueUnavailableError as error:
        raise unavailable(
            f"the logs of the function {function!r} are kept in NATS, which does not answer; "
            'read those of a worker that runs with "gpu-platform units logs"'
        ) from error
    if not found and not options.follow:
        who = f"its worker {options.worker!r}" if options.worker else "none of its workers"
        said = "has not" if options.worker else "has"
        raise conflict(f"the function {function!r} has no logs: {who} {said} written a line in the last 24 hours")
    lines = merge_logs((each.worker, each.lines) for each in found)
    yield _render(lines if options.tail is None else lines[max(0, len(lines) - options.tail) :], options)
    while options.follow:
        await asyncio.sleep(LOOK_SECONDS)
        known = {each.worker: each for each in found}
        changed = await _read_changed(link, tenant, function, options, found)
        if changed:
            added = (
                (each.worker, appended(known[each.worker].lines if each.worker in known else (), each.lines))
                for each in changed
            )
            yield _render(merge_logs(added), options)
            found = tuple((known | {each.worker: each for each in changed}).values())


async def _read_changed(
    link: QueueLink, tenant: str, function: str, options: FunctionLogOptions, found: Iterable[WorkerLog]
) -> tuple[WorkerLog, ...]:
    """What was written since then; nothing while NATS is away."""
    sequence = max((each.sequence for each in found), default=0) + 1
    try:
        return await list_logs(link.js, tenant, function, options.worker or "*", sequence=sequence)
    except QueueUnavailableError:
        return ()


def _render(lines: Iterable[tuple[str, str]], options: FunctionLogOptions) -> bytes:
    shown = ((worker, line if options.timestamps else text_of(line)) for worker, line in lines)
    rendered = (text if options.worker else f"{worker} | {text}" for worker, text in shown)
    return "".join(f"{text}\n" for text in rendered).encode()
