"""Waiting for a call to be over: woken by hints, and by the clock when those are lost."""

import time

from gpu_platform.adapters.queue.hints import LOOK_SECONDS, Waiter
from gpu_platform.domain.invocations import Invocation, phases_of_cold_start
from gpu_platform.nats.errors import QueueUnavailableError
from platform_api.invocations.store import Store
from platform_api.metrics import ApiMetrics

DEFAULT_SECONDS = 30
LONGEST_SECONDS = 300


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
