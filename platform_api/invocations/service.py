"""The service of invocations: accepts, reads, waits for, ends and retries them; made once per process."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from gpu_platform.api_models.envelope import Page
from gpu_platform.api_models.invocations import InvocationView, Redrive, Redriven
from gpu_platform.domain.invocations import (
    Invocation,
    InvocationRequest,
    InvocationState,
    cancel,
    retry,
    retry_id,
    without_contents,
)
from gpu_platform.nats.bodies import MissingBodyError
from gpu_platform.nats.errors import OutdatedError, QueueUnavailableError, TooLargeError
from gpu_platform.nats.records import Seen
from platform_api.auth.keys import Caller
from platform_api.cluster import Cluster
from platform_api.http.capacity import release_held
from platform_api.http.errors import ApiError, conflict, in_progress
from platform_api.invocations.acceptance import (
    CallAcceptance,
    find_function,
    is_over,
    state_of,
    too_large,
)
from platform_api.invocations.limits import QueueCounts
from platform_api.invocations.parsing import Asked, TextThreads, read_asked
from platform_api.invocations.reads import (
    DEFAULT_SECONDS,
    CallWaits,
    Shown,
    Store,
    open_store,
    show,
    view_invocation,
    watch_calls,
)
from platform_api.metrics import ApiMetrics
from platform_api.nats_connection import QueueLink
from platform_api.objects.idempotent_create import Accepted
from platform_api.objects.tenant_limits import TenantLimitReader
from platform_api.settings import ApiSettings

log = logging.getLogger(__name__)

TRIES = 10
"""Against workers, who write the same record."""

PAUSE_SECONDS = 0.05
"""Between two tries."""

GONE = (404, 409)
"""The answers for a dead letter that cannot be tried again: its function or its payload is gone."""

AT_ONCE = 16
PAGE = 256
T = TypeVar("T")

WAITING_SHARE = 2
"""Half of the requests under way may wait for a result."""


class CallChanges:
    def __init__(self, acceptance: CallAcceptance, now: Callable[[], datetime]) -> None:
        self._acceptance = acceptance
        self._now = now

    async def cancel(self, store: Store, caller: Caller, invocation_id: str) -> Invocation:
        """At once while it waits; one that runs is asked to end."""
        function: str | None = None
        for _ in range(TRIES):
            seen = await store.get(caller, invocation_id, function)
            function = seen.call.function
            if seen.call.is_over:
                raise is_over(invocation_id, seen.call.state)
            if seen.call.is_cancel_asked:
                return seen.call
            try:
                return await self._cancel(store, seen)
            except OutdatedError:
                await asyncio.sleep(PAUSE_SECONDS)
            except TooLargeError as error:
                raise too_large(str(error)) from error
        raise in_progress(f"the invocation {invocation_id!r} changes all the time; try again")

    async def delete(self, store: Store, caller: Caller, invocation_id: str) -> Invocation:
        """Deletes an invocation that is over, with its payload and result. Returns what it was."""
        seen = await store.get(caller, invocation_id)
        if not seen.call.is_over:
            raise conflict(f"the invocation {invocation_id!r} is {seen.call.state}; cancel it first")
        try:
            await store.records.delete(seen)
        except OutdatedError:
            raise in_progress(f"the invocation {invocation_id!r} was modified concurrently; try again") from None
        await self._free_room(store, seen.call)
        return seen.call

    async def retry(self, store: Store, caller: Caller, invocation_id: str) -> Accepted[Invocation]:
        call = (await store.get(caller, invocation_id)).call
        if not call.is_over:
            raise conflict(f"the invocation {invocation_id!r} is not over: it is {call.state}")
        return await self._try_again(store, caller, call)

    async def redrive(self, store: Store, caller: Caller, wish: Redrive) -> Redriven:
        """One after the other, until a queue is full."""
        calls, more = await self._find_dead_letters(store, caller, wish)
        ids: list[str] = []
        known = skipped = 0
        for call in calls:
            try:
                # As it was listed, it has no payload.
                found = await store.get(caller, call.id, call.function)
                again = await self._try_again(store, caller, found.call)
            except ApiError as error:
                if error.status in GONE:
                    log.info("invocations.not_redriven", extra={"invocation": call.id, "error": error.message})
                    skipped += 1
                    continue
                if error.status != 429 or not ids:
                    raise
                more = True
                break
            if again.is_new:
                ids.append(again.item.id)
            else:
                known += 1
        return Redriven(redriven=len(ids), known=known, skipped=skipped, ids=tuple(ids), more=more)

    async def purge(self, store: Store, caller: Caller, function: str) -> int:
        """Cancels what waits. What runs goes on."""
        cancelled = 0
        sequence: int | None = 0
        # What is cancelled moves behind the end: without it, this would meet its own work.
        end = await store.listing.find_end()
        while sequence is not None and sequence < end:
            seen, sequence = await store.list_page(
                caller, sequence=sequence, limit=PAGE, function=function, state=InvocationState.QUEUED
            )
            cancelled += sum(await _each(seen, lambda one: self._is_cancelled(store, one)))
        return cancelled

    async def _is_cancelled(self, store: Store, listed: Seen) -> bool:
        seen = await store.records.find(listed.call.tenant, listed.call.id, listed.call.function)
        if seen is None or seen.call.state is not InvocationState.QUEUED:
            return False
        try:
            await self._cancel(store, seen)
        except (OutdatedError, TooLargeError):
            # It has begun, or somebody else was faster; or the sweep has to end it.
            return False
        return True

    async def _cancel(self, store: Store, seen: Seen) -> Invocation:
        changed = await store.records.change(seen, cancel(seen.call, self._now()))
        if changed.call.is_over:
            await self._free_room(store, changed.call)
        return changed.call

    async def _free_room(self, store: Store, call: Invocation) -> None:
        """Of an invocation that was cancelled or deleted. What cannot be done now, the sweep does."""
        try:
            await store.records.unqueue(call)
            if call.payload_body is not None or call.result_body is not None:
                await store.bodies.delete(call)
        except QueueUnavailableError as error:
            log.warning("invocations.room_not_freed", extra={"invocation": call.id, "error": str(error)})
        self._acceptance.tenant_room.measure_again(call.tenant)

    async def _try_again(self, store: Store, caller: Caller, call: Invocation) -> Accepted[Invocation]:
        again = retry(call, self._now())
        if known := await store.records.find(caller.tenant, again.id, call.function):
            return _known_retry(known.call, call)
        async with self._acceptance.room(store, caller, call.function):
            if call.payload_body is not None:
                try:
                    content = await store.bodies.get_payload(call, call.payload_body)
                except MissingBodyError:
                    raise conflict(
                        f"the payload of {call.id!r} was deleted, as those of cancelled invocations and of deleted "
                        "functions are; make a new call"
                    ) from None
                again = await self._acceptance.store_payload(store, again, content)
            accepted = await self._acceptance.write(store, again)
        return accepted if accepted.is_new else _known_retry(accepted.item, call)

    async def _find_dead_letters(self, store: Store, caller: Caller, wish: Redrive) -> tuple[list[Invocation], bool]:
        """Without their contents, and whether there may be more."""
        if wish.ids is None:
            return await self._scan_dead_letters(store, caller, wish.function, wish.limit)
        found = [without_contents((await store.get(caller, each)).call) for each in wish.ids[: wish.limit]]
        for call in found:
            if call.state is not InvocationState.DEAD_LETTERED:
                raise conflict(f"the invocation {call.id!r} is no dead letter: it is {call.state}")
            if wish.function not in (None, call.function):
                raise conflict(f"the invocation {call.id!r} is one of the function {call.function!r}")
        return found, len(wish.ids) > wish.limit

    async def _scan_dead_letters(
        self, store: Store, caller: Caller, function: str | None, limit: int
    ) -> tuple[list[Invocation], bool]:
        """Those that were not tried again before: with them, a second request would never get beyond the limit."""
        found: list[Invocation] = []
        sequence: int | None = 0
        while sequence is not None and len(found) < limit:
            seen, sequence = await store.list_page(
                caller, sequence=sequence, limit=PAGE, function=function, state=InvocationState.DEAD_LETTERED
            )
            fresh = await _each(seen, lambda one: self._is_fresh(store, one.call))
            found += [one.call for one, is_fresh in zip(seen, fresh, strict=True) if is_fresh]
        return found[:limit], sequence is not None or len(found) > limit

    async def _is_fresh(self, store: Store, call: Invocation) -> bool:
        return await store.records.find(call.tenant, retry_id(call.tenant, call.id), call.function) is None


def _known_retry(known: Invocation, call: Invocation) -> Accepted[Invocation]:
    if (known.retry_of, known.function) != (call.id, call.function):
        raise conflict(f"{known.id!r}, the id for the retry of {call.id!r}, was given to another call; make a new call")
    return Accepted(known, is_new=False)


async def _each(items: Sequence[Seen], do: Callable[[Seen], Awaitable[T]]) -> list[T]:
    """A few at once."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(item: Seen) -> T:
        async with slots:
            return await do(item)

    return await asyncio.gather(*map(one, items))


class InvocationService:
    def __init__(
        self,
        cluster: Cluster,
        link: QueueLink,
        counts: QueueCounts,
        settings: ApiSettings,
        limits: TenantLimitReader,
        metrics: ApiMetrics,
        now: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._link = link
        self._retention = settings.result_retention
        self._largest_body = settings.max_invocation_bytes
        self._metrics = metrics
        self._threads = TextThreads()
        self._acceptance = CallAcceptance(cluster, link, counts, self._threads, limits.of, now)
        self._changes = CallChanges(self._acceptance, now)
        self._waits = CallWaits(max(1, settings.max_requests_in_flight // WAITING_SHARE), metrics)

    async def read(self, caller: Caller, body: bytes) -> Asked:
        """What a caller asks for, with the payload not parsed."""
        return await self._threads.run(caller.tenant, body, lambda: read_asked(body))

    async def invoke(self, caller: Caller, asked: Asked) -> tuple[Shown, bool]:
        """The call, and whether it is new."""
        store, accepted = await self._accept(caller, asked.fields.to_request(), asked.take_payload())
        return await self._show(caller, store, accepted.item), accepted.is_new

    async def invoke_and_wait(self, caller: Caller, asked: Asked) -> tuple[Shown, bool]:
        """The call, and whether it is over."""
        request = asked.fields.to_request()
        # From before it is queued: its end may be here sooner than the answer that it is.
        with self._link.hints.waiting(caller.tenant, request.id) as waiter:
            store, accepted = await self._accept(caller, request, asked.take_payload())
            seconds = asked.fields.timeout_seconds or DEFAULT_SECONDS
            call = await self._waits.wait(store, accepted.item, waiter, seconds)
        return await self._show(caller, store, call), call.is_over

    async def get(self, caller: Caller, invocation_id: str) -> Shown:
        store = self._store()
        return await self._show(caller, store, (await store.get(caller, invocation_id)).call)

    async def list_page(
        self, caller: Caller, token: str | None, limit: int, function: str | None, state: InvocationState | None
    ) -> Page[InvocationView]:
        seen, next_sequence = await self._store().list_page(
            caller, sequence=int(token or 0), limit=limit, function=function, state=state
        )
        next_token = str(next_sequence) if next_sequence is not None else None
        return Page(data=tuple(view_invocation(one.call) for one in seen), continue_=next_token)

    async def cancel(self, caller: Caller, invocation_id: str) -> InvocationView:
        return view_invocation(await self._changes.cancel(self._writable_store(), caller, invocation_id))

    async def delete(self, caller: Caller, invocation_id: str) -> InvocationView:
        return view_invocation(await self._changes.delete(self._writable_store(), caller, invocation_id))

    async def retry(self, caller: Caller, invocation_id: str) -> tuple[InvocationView, bool]:
        accepted = await self._changes.retry(self._store(), caller, invocation_id)
        return view_invocation(accepted.item), accepted.is_new

    async def redrive(self, caller: Caller, wish: Redrive) -> Redriven:
        return await self._changes.redrive(self._writable_store(), caller, wish)

    async def purge(self, caller: Caller, function: str) -> int:
        store = self._writable_store()
        await find_function(self._cluster, caller.namespace, function)
        return await self._changes.purge(store, caller, function)

    def watch(self, caller: Caller, function: str | None, last_seen: str | None) -> AsyncGenerator[bytes, None]:
        return watch_calls(self._store, self._link.hints, caller.tenant, function, last_seen)

    async def _accept(
        self, caller: Caller, request: InvocationRequest, payload: bytes
    ) -> tuple[Store, Accepted[Invocation]]:
        try:
            store = self._store()
            accepted = await self._acceptance.accept(store, caller, request, payload)
        except ApiError as error:
            self._metrics.count_refused_call(error.code)
            raise
        except QueueUnavailableError:
            self._metrics.count_refused_call("service_unavailable")
            raise
        # Its payload is stored: a caller may wait for the result for minutes, with others beside it.
        release_held()
        if accepted.is_new:
            self._metrics.count_accepted_call(request.mode)
        return store, accepted

    def _writable_store(self) -> Store:
        """503 at once while NATS stores nothing."""
        self._link.check_storage()
        return self._store()

    async def _show(self, caller: Caller, store: Store, call: Invocation) -> Shown:
        """With how the function is, while the call is not over. From the cache: it costs no request."""
        shown = await show(store, call, self._threads, self._largest_body)
        function = None if call.is_over else self._cluster.functions.get(caller.namespace, call.function)
        if function is None:
            return shown
        return replace(shown, view=shown.view.model_copy(update={"function_state": state_of(function)}))

    def _store(self) -> Store:
        return open_store(self._link.js, self._retention)
