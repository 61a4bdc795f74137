"""Ending calls, and trying ended ones again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TypeVar

from gpu_platform.domain.invocations import Invocation, InvocationState, cancel, retry, retry_id, without_contents
from gpu_platform.nats.bodies import MissingBodyError
from gpu_platform.nats.errors import OutdatedError, QueueUnavailableError, TooLargeError
from gpu_platform.nats.records import Seen
from platform_api.auth.keys import Caller
from platform_api.http.errors import ApiError, conflict, in_progress
from platform_api.invocations.acceptance import AcceptedCall, CallAcceptance
from platform_api.invocations.errors import is_over, too_large
from platform_api.invocations.reads import CallReads
from platform_api.invocations.schemas import Redrive, Redriven
from platform_api.invocations.store import Store

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


class CallChanges:
    def __init__(self, acceptance: CallAcceptance, reads: CallReads, now: Callable[[], datetime]) -> None:
        self._acceptance = acceptance
        self._reads = reads
        self._now = now

    async def cancel(self, store: Store, caller: Caller, invocation_id: str) -> Invocation:
        """At once while it waits; one that runs is asked to end."""
        function: str | None = None
        for _ in range(TRIES):
            seen = await self._reads.get(store, caller, invocation_id, function)
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
        seen = await self._reads.get(store, caller, invocation_id)
        if not seen.call.is_over:
            raise conflict(f"the invocation {invocation_id!r} is {seen.call.state}; cancel it first")
        try:
            await store.records.delete(seen)
        except OutdatedError:
            raise in_progress(f"the invocation {invocation_id!r} was modified concurrently; try again") from None
        await self._free_room(store, seen.call)
        return seen.call

    async def retry(self, store: Store, caller: Caller, invocation_id: str) -> AcceptedCall:
        call = (await self._reads.get(store, caller, invocation_id)).call
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
                found = await self._reads.get(store, caller, call.id, call.function)
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
                ids.append(again.call.id)
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
            seen, sequence = await self._reads.list_page(
                store, caller, sequence=sequence, limit=PAGE, function=function, state=InvocationState.QUEUED
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

    async def _try_again(self, store: Store, caller: Caller, call: Invocation) -> AcceptedCall:
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
        return accepted if accepted.is_new else _known_retry(accepted.call, call)

    async def _find_dead_letters(self, store: Store, caller: Caller, wish: Redrive) -> tuple[list[Invocation], bool]:
        """Without their contents, and whether there may be more."""
        if wish.ids is None:
            return await self._scan_dead_letters(store, caller, wish.function, wish.limit)
        found = [without_contents((await self._reads.get(store, caller, each)).call) for each in wish.ids[: wish.limit]]
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
            seen, sequence = await self._reads.list_page(
                store,
                caller,
                sequence=sequence,
                limit=PAGE,
                function=function,
                state=InvocationState.DEAD_LETTERED,
            )
            fresh = await _each(seen, lambda one: self._is_fresh(store, one.call))
            found += [one.call for one, is_fresh in zip(seen, fresh, strict=True) if is_fresh]
        return found[:limit], sequence is not None or len(found) > limit

    async def _is_fresh(self, store: Store, call: Invocation) -> bool:
        return await store.records.find(call.tenant, retry_id(call.tenant, call.id), call.function) is None


def _known_retry(known: Invocation, call: Invocation) -> AcceptedCall:
    if (known.retry_of, known.function) != (call.id, call.function):
        raise conflict(f"{known.id!r}, the id for the retry of {call.id!r}, was given to another call; make a new call")
    return AcceptedCall(known, is_new=False)


async def _each(items: Sequence[Seen], do: Callable[[Seen], Awaitable[T]]) -> list[T]:
    """A few at once."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(item: Seen) -> T:
        async with slots:
            return await do(item)

    return await asyncio.gather(*map(one, items))
