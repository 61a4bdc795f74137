"""Looking at calls."""

import logging
from dataclasses import dataclass

from gpu_platform.domain.invocations import Invocation, InvocationState
from gpu_platform.nats.bodies import MissingBodyError
from gpu_platform.nats.records import Seen
from platform_api.auth.keys import Caller
from platform_api.http.errors import ApiError
from platform_api.http.holding import hold
from platform_api.invocations.errors import invocation_not_found
from platform_api.invocations.parsing import TextThreads, check_result
from platform_api.invocations.schemas import InvocationView, view_of
from platform_api.invocations.store import Store

log = logging.getLogger(__name__)

SCANNED = 5_000
"""Records that one request looks through at most: a rare state is found page by page."""

BATCH = 256


@dataclass(frozen=True)
class Shown:
    """A call as one caller sees it."""

    view: InvocationView
    result_body: bytes | None = None
    """JSON: the body of a large result, which the view does not hold."""


class CallReads:
    def __init__(self, largest_body: int, threads: TextThreads) -> None:
        self._largest_body = largest_body
        self._threads = threads

    async def get(self, store: Store, caller: Caller, invocation_id: str, function: str | None = None) -> Seen:
        seen = await store.records.find(caller.tenant, invocation_id, function)
        if seen is None:
            raise invocation_not_found(invocation_id)
        return seen

    async def show(self, store: Store, call: Invocation) -> Shown:
        """With the result's body, from the record or from beside it."""
        body = call.result_body
        if call.result is None or body is None or body.size > self._largest_body:
            return Shown(view_of(call, call.result))
        _hold_result(call, body.size)
        try:
            content = await store.bodies.get_result(call, body)
            await self._threads.run(call.tenant, content, lambda: check_result(content))
        except (MissingBodyError, ValueError) as error:
            log.error("invocations.body_lost", extra={"invocation": call.id, "error": str(error)})
            problem = f"the body of the result cannot be read: {error}"
            return Shown(view_of(call, call.result.model_copy(update={"error": problem})))
        return Shown(view_of(call, call.result), content)

    async def list_page(
        self,
        store: Store,
        caller: Caller,
        *,
        sequence: int,
        limit: int,
        function: str | None = None,
        state: InvocationState | None = None,
    ) -> tuple[list[Seen], int | None]:
        """In the order of their last change, without their contents, and where the next page begins."""
        found: list[Seen] = []
        scanned = 0
        batch = limit if state is None else BATCH
        while True:
            page = await store.listing.read_page(caller.tenant, sequence, function=function, limit=batch)
            for seen in page.seen:
                if state is None or seen.call.state is state:
                    found.append(seen)
                if len(found) == limit:
                    is_all = page.is_last and seen is page.seen[-1]
                    return found, None if is_all else seen.revision + 1
            scanned += page.scanned
            sequence = page.next_sequence
            if page.is_last or scanned >= SCANNED:
                return found, None if page.is_last else sequence


def _hold_result(call: Invocation, size: int) -> None:
    """Refuses before the result is read. The refusal names the id, which a caller who waited may not know."""
    try:
        hold(size)
    except ApiError as error:
        message = f"the invocation {call.id!r} is over, and its result has {size} bytes: {error.message}"
        raise ApiError(error.status, error.code, message, headers=error.headers) from None
