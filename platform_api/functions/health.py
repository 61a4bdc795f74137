"""How a function is: its workers from its status, its calls from the queue, if that can be asked."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, Protocol

from gpu_platform.domain.gpu_functions import FunctionPhase, FunctionReason
from gpu_platform.nats.errors import QueueUnavailableError
from platform_api.auth.keys import Caller
from platform_api.functions.views import FunctionHealth, FunctionView, HealthState, view_of

log = logging.getLogger(__name__)

Json = dict[str, Any]

QUEUE_SECONDS = 1.5
"""For the queue to answer."""

NO_ANSWER = "NATS does not answer just now; calls that were accepted are kept"


@dataclass(frozen=True)
class QueueCount:
    """Calls of one function that are not over."""

    waiting: int
    running: int


class QueueFigures(Protocol):
    async def count(self, tenant: str, function: str) -> QueueCount:
        """QueueUnavailableError: nobody can say. A function that has no queue yet has no calls."""
        ...


class FunctionHealthReads:
    def __init__(self, figures: QueueFigures | None) -> None:
        """Without figures, this API has no queue."""
        self._figures = figures
        self._asking: set[asyncio.Task[QueueCount]] = set()

    async def read(self, caller: Caller, function: Json) -> FunctionHealth:
        view = view_of(function)
        if self._figures is None:
            return build_health(view, None, "this API runs without NATS: natsURL is not set")
        return build_health(view, await self._count(self._figures, caller.tenant, view.name), NO_ANSWER)

    async def _count(self, figures: QueueFigures, tenant: str, function: str) -> QueueCount | None:
        # Left alone when it takes too long, not cancelled: NATS' client does not stand that.
        task = asyncio.create_task(figures.count(tenant, function))
        self._asking.add(task)
        task.add_done_callback(self._forget)
        await asyncio.wait({task}, timeout=QUEUE_SECONDS)
        return task.result() if task.done() and task.exception() is None else None

    def _forget(self, task: asyncio.Task[QueueCount]) -> None:
        self._asking.discard(task)
        if not task.cancelled() and (error := task.exception()) and not isinstance(error, QueueUnavailableError):
            log.error("functions.count-failed", exc_info=error)


def build_health(view: FunctionView, count: QueueCount | None, absence: str) -> FunctionHealth:
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


def _state_of(view: FunctionView, count: QueueCount | None) -> HealthState:
    if count is None or view.reason == FunctionReason.QUEUE_UNAVAILABLE:
        return HealthState.QUEUE_UNAVAILABLE
    if view.phase is FunctionPhase.FAILED:
        return HealthState.FAILING
    if view.ready_workers:
        return HealthState.READY
    return HealthState.STARTING if view.workers or view.min_workers else HealthState.COLD
