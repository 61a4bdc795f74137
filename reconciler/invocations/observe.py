"""The calls that are not over, and the queue, as they are followed."""

from gpu_platform.domain.invocations import Invocation, InvocationState
from gpu_platform.nats.listing import EVERYBODY, Listing, Queued
from gpu_platform.nats.records import Seen

BATCH = 256

Key = tuple[str, str, str]
"""Tenant, id and function: a worker can write records of its own function, with any id."""


class OpenCalls:
    """In memory; what has changed since the last look is read, and nothing else."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._sequence = 0
        self._calls: dict[Key, Invocation] = {}
        self._cancelled: set[Key] = set()

    def __contains__(self, key: Key) -> bool:
        return key in self._calls

    def calls(self) -> tuple[Invocation, ...]:
        return tuple(self._calls.values())

    def forget(self, call: Invocation) -> None:
        self._calls.pop(key_of(call), None)

    def take_cancelled(self) -> tuple[Key, ...]:
        """Returns, once, the cancelled invocations that had bodies beside their records."""
        taken, self._cancelled = tuple(self._cancelled), set()
        return taken

    async def follow(self) -> None:
        """Up to now."""
        if await self._listing.find_end() < self._sequence:
            # The stream was created again, or put back from a backup: nothing that is known counts.
            self._sequence = 0
            self._calls.clear()
            self._cancelled.clear()
        while True:
            page = await self._listing.read_page(EVERYBODY, self._sequence, limit=BATCH)
            for seen in page.seen:
                self._take(seen)
            self._sequence = page.next_sequence
            if page.is_last:
                return

    def _take(self, seen: Seen) -> None:
        if seen.call.is_over:
            self.forget(seen.call)
            if seen.call.state is InvocationState.CANCELLED and seen.call.payload_body is not None:
                self._cancelled.add(key_of(seen.call))
        else:
            self._calls[key_of(seen.call)] = seen.call


def key_of(call: Invocation) -> Key:
    return call.tenant, call.id, call.function


def key_of_message(queued: Queued) -> Key:
    """A message of another function does not run a call."""
    return queued.tenant, queued.invocation_id, queued.function
