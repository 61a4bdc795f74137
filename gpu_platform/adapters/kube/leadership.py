"""Whether this process may write now: a question to its own clock, never to the network."""

import math
import time
from collections.abc import Callable

Clock = Callable[[], float]


def uptime() -> float:
    """Seconds on a clock that is never set, and that goes on while the machine is suspended where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class NotLeaderError(Exception):
    """This process may not write now; another one may be doing so."""


class Leadership:
    """Whether this process may write now. One object for the life of the process, whatever terms it wins."""

    def __init__(self, clock: Clock = uptime) -> None:
        self._clock = clock
        self._deadline = -math.inf
        self._epoch = 0

    @property
    def is_leader(self) -> bool:
        return self._clock() < self._deadline

    @property
    def epoch(self) -> int:
        """The number of the last term that this process won: the Lease's `leaseTransitions`, which only grows."""
        return self._epoch

    @property
    def seconds_left(self) -> float:
        """Until the deadline, if nothing is renewed; infinite without election, zero when it has passed."""
        return max(0.0, self._deadline - self._clock())

    def check(self) -> None:
        """Raise NotLeaderError unless this process may write now."""
        if not self.is_leader:
            raise NotLeaderError("this process does not lead, or its lease has run out")

    def begin(self, epoch: int, deadline: float) -> None:
        self._epoch = epoch
        self._deadline = deadline

    def extend(self, deadline: float) -> None:
        """A renewed term lasts longer. One that has run out stays over: its work was planned in another time."""
        if self.is_leader:
            self._deadline = max(self._deadline, deadline)

    def end(self) -> None:
        self._deadline = -math.inf


def always_leading() -> Leadership:
    """For a daemon that runs alone, without election."""
    leadership = Leadership()
    leadership.begin(0, math.inf)
    return leadership
