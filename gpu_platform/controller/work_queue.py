"""The keys that wait for a pass: each at most once, and each with at most one worker at a time.

Keys carry no news: a pass looks at the world as it is then. So a hundred changes of one object that come while
it waits are one pass, and a change that comes during its pass is one more.

Keys may be in lanes, such as one for each tenant: the lanes take turns, and within a lane the first key is first.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from datetime import timedelta
from typing import Generic, TypeVar

from gpu_platform.clock import Backoff

Key = TypeVar("Key", bound=Hashable)

RETRY = Backoff(first=0.05, longest=60.0)
"""A lost race is over in milliseconds; what has failed ten times in a row is tried once a minute."""


def one_lane(_: Hashable) -> Hashable:
    return None


class LaneQueue(asyncio.Queue[Key]):
    """A queue whose lanes take turns: a lane that was served is behind all others that have keys."""

    def __init__(self, lane_of: Callable[[Key], Hashable]) -> None:
        self._lane_of = lane_of
        super().__init__()

    def qsize(self) -> int:
        return sum(map(len, self._queue.values()))

    def _init(self, maxsize: int) -> None:  # noqa: ARG002 - the signature is asyncio's
        self._queue: OrderedDict[Hashable, deque[Key]] = OrderedDict()

    def _put(self, item: Key) -> None:
        self._queue.setdefault(self._lane_of(item), deque()).append(item)

    def _get(self) -> Key:
        lane, keys = self._queue.popitem(last=False)
        key = keys.popleft()
        if keys:
            self._queue[lane] = keys
        return key


class WorkQueue(Generic[Key]):
    """Time is the event loop's."""

    def __init__(self, retry: Backoff = RETRY, lane_of: Callable[[Key], Hashable] = one_lane) -> None:
        self._retry = retry
        self._ready = LaneQueue(lane_of)
        self._waiting: set[Key] = set()
        self._active: set[Key] = set()
        self._again: set[Key] = set()
        self._appointments: dict[Key, asyncio.TimerHandle] = {}
        self._failures: Counter[Key] = Counter()

    def __len__(self) -> int:
        """Keys that are due and wait for a worker."""
        return len(self._waiting) + len(self._again)

    def add(self, key: Key) -> None:
        """As soon as a worker is free; if one has the key now, again after it."""
        if key in self._active:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.put_nowait(key)

    def add_after(self, key: Key, delay: timedelta) -> None:
        """Not before this delay; of several appointments the earliest counts."""
        loop = asyncio.get_running_loop()
        due_at = loop.time() + delay.total_seconds()
        if (known := self._appointments.get(key)) is not None:
            if known.when() <= due_at:
                return
            known.cancel()
        self._appointments[key] = loop.call_at(due_at, self._keep_appointment, key)

    def add_failed(self, key: Key) -> None:
        """After a delay that grows with each failure in a row, until `forget`."""
        self._failures[key] += 1
        self.add_after(key, timedelta(seconds=self._retry.delay(self._failures[key])))

    def forget(self, key: Key) -> None:
        """The key succeeded: its next failure is a first one."""
        self._failures.pop(key, None)

    async def get(self) -> Key:
        """The next key. The caller says `done` when the pass has ended, however it ended."""
        key = await self._ready.get()
        self._waiting.discard(key)
        self._active.add(key)
        # The pass that begins now makes its own next appointment.
        if (known := self._appointments.pop(key, None)) is not None:
            known.cancel()
        return key

    def done(self, key: Key) -> None:
        self._active.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def close(self) -> None:
        """Forget all appointments; nothing is left behind in the event loop."""
        for appointment in self._appointments.values():
            appointment.cancel()
        self._appointments.clear()

    def _keep_appointment(self, key: Key) -> None:
        del self._appointments[key]
        self.add(key)
