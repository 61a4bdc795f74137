"""Reading invocations: one, a page of them, waiting for one, and following all of a tenant (server-sent events).

An event's id is a sequence of the records' stream: a caller that was disconnected sends the last one it saw
(`Last-Event-ID`) and misses no invocation. Of several changes of one invocation between two looks, the last is sent.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import timedelta

from gpu_platform.api_models.invocations import InvocationView
from gpu_platform.domain.invocations import Invocation, InvocationResult, InvocationState, phases_of_cold_start
from gpu_platform.nats.bodies import Bodies, MissingBodyError
from gpu_platform.nats.connection import JetStream
from gpu_platform.nats.errors import QueueUnavailableError
from gpu_platform.nats.listing import Listing
from gpu_platform.nats.records import LOOK_SECONDS, Hints, Records, Seen, Waiter
from platform_api.auth.keys import Caller
from platform_api.http.capacity import hold
from platform_api.http.errors import ApiError, not_found
from platform_api.http.streams import build_event
from platform_api.invocations.parsing import TextThreads, check_result
from platform_api.metrics import ApiMetrics

log = logging.getLogger(__name__)

SCANNED = 5_000
"""Records that one request looks through at most: a rare state is found page by page."""

BATCH = 256
DEFAULT_SECONDS = 30
LONGEST_SECONDS = 300

SILENCE_SECONDS = 15.0
"""After that a comment keeps proxies from closing a silent stream."""

RETRY_SECONDS = 1.0

TOGETHER_SECONDS = 0.05
"""Changes that come together are read together."""


def invocation_not_found(invocation_id: str) -> ApiError:
    return not_found(
        "invocation_not_found",
        f"there is no invocation {invocation_id!r}; after their end they are kept for a limited time",
    )


@dataclass(frozen=True)
class Store:
    records: Records
    bodies: Bodies
    listing: Listing

    async def get(self, caller: Caller, invocation_id: str, function: str | None = None) -> Seen:
        seen = await self.records.find(caller.tenant, invocation_id, function)
        if seen is None:
            raise invocation_not_found(invocation_id)
        return seen

    async def list_page(
        self,
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
            page = await self.listing.read_page(caller.tenant, sequence, function=function, limit=batch)
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


def open_store(js: JetStream, retention: timedelta) -> Store:
    return Store(Records(js, retention), Bodies(js, retention), Listing(js))


def view_invocation(call: Invocation, result: InvocationResult | None = None) -> InvocationView:
    """With the result as it was read, or else without its body."""
    bare = call.result.model_copy(update={"body": None}) if call.result else None
    return InvocationView(
        invocation_id=call.id,
        serverless_request_id=call.function,
        mode=call.mode,
        state=call.state,
        attempts=call.attempts,
        worker=call.worker,
        cancel_asked=(call.is_cancel_asked and not call.is_over) or None,
        retry_of=call.retry_of,
        accepted_at=call.accepted_at,
        expires_at=call.expires_at,
        queued_at=call.queued_at,
        first_started_at=call.first_started_at,
        started_at=call.started_at,
        cold_start=call.cold_start,
        finished_at=call.finished_at,
        reason=call.reason,
        result=result or bare,
        result_bytes=call.result_body.size if call.result_body else None,
    )


@dataclass(frozen=True)
class Shown:
    """A call as one caller sees it."""

    view: InvocationView
    result_body: bytes | None = None
    """JSON: the body of a large result, which the view does not hold."""


async def show(store: Store, call: Invocation, threads: TextThreads, largest_body: int) -> Shown:
    """With the result's body, from the record or from beside it."""
    body = call.result_body
    if call.result is None or body is None or body.size > largest_body:
        return Shown(view_invocation(call, call.result))
    _hold_result(call, body.size)
    try:
        content = await store.bodies.get_result(call, body)
        await threads.run(call.tenant, content, lambda: check_result(content))
    except (MissingBodyError, ValueError) as error:
        log.error("invocations.body_lost", extra={"invocation": call.id, "error": str(error)})
        problem = f"the body of the result cannot be read: {error}"
        return Shown(view_invocation(call, call.result.model_copy(update={"error": problem})))
    return Shown(view_invocation(call, call.result), content)


def _hold_result(call: Invocation, size: int) -> None:
    """Refuses before the result is read. The refusal names the id, which a caller who waited may not know."""
    try:
        hold(size)
    except ApiError as error:
        message = f"the invocation {call.id!r} is over, and its result has {size} bytes: {error.message}"
        raise ApiError(error.status, error.code, message, headers=error.headers) from None


class CallWaits:
    def __init__(self, limit: int, metrics: ApiMetrics) -> None:
        """No more than `limit` wait at once: the others must still be answered."""
        self._limit = limit
        self._waiting = 0
        self._metrics = metrics

    async def wait(self, store: Store, call: Invocation, waiter: Waiter, seconds: float) -> Invocation:
        """The call when it is over; or as it is when the time is, or when too many wait here."""
        if call.is_over or self._waiting >= self._limit:
            return call
        self._waiting += 1
        began_at = time.monotonic()
        try:
            call = await _look_until_over(store, call, waiter, began_at + min(seconds, LONGEST_SECONDS))
        finally:
            self._waiting -= 1
            self._metrics.count_sync_wait("over" if call.is_over else "not_yet", time.monotonic() - began_at)
        if call.is_over:
            self._metrics.count_cold_call(phases_of_cold_start(call))
        return call


async def _look_until_over(store: Store, call: Invocation, waiter: Waiter, until: float) -> Invocation:
    while not call.is_over and (left := until - time.monotonic()) > 0:
        await waiter.wait(min(left, LOOK_SECONDS))
        try:
            seen = await store.records.find(call.tenant, call.id, call.function)
        except QueueUnavailableError:
            # It is safe. Whoever waits may be answered later, or ask again.
            continue
        call = seen.call if seen else call
    return call


async def watch_calls(
    open_store: Callable[[], Store], hints: Hints, tenant: str, function: str | None, last_seen: str | None
) -> AsyncGenerator[bytes, None]:
    end = await open_store().listing.find_end()
    sequence = int(last_seen) + 1 if last_seen is not None else end
    if sequence > end:
        # The records are not those that the caller saw, as after a restored backup.
        sequence = 1
        yield build_event("resync", None, {})
    yield f"id: {sequence - 1}\n\n".encode()
    spoke_at = time.monotonic()
    with hints.waiting(tenant) as waiter:
        while True:
            try:
                page = await open_store().listing.read_page(tenant, sequence, function=function)
            except QueueUnavailableError:
                yield b": NATS is away\n\n"
                await asyncio.sleep(RETRY_SECONDS)
                continue
            sequence = page.next_sequence
            for seen in page.seen:
                yield build_event("changed", str(seen.revision), view_invocation(seen.call).to_json())
            if page.seen:
                spoke_at = time.monotonic()
            elif time.monotonic() - spoke_at > SILENCE_SECONDS:
                yield b": still there\n\n"
                spoke_at = time.monotonic()
            if page.is_last:
                await waiter.wait()
                await asyncio.sleep(TOGETHER_SECONDS)
