"""How many workers a function is to have. Pure: what was asked of it, what it has, and time go in.

Nothing is averaged. A GPU job takes seconds or minutes, so a call that waits is a worker that is missing, now; and one
that has nothing to do is kept for the function's idle time, because the next call would have to wait for another. A
rise therefore counts at once, and for as long as that.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

UTILISATION = 0.7
"""Of a worker's slots that are planned with: the rest is for what comes while another worker starts."""

QUEUE_DELAY = timedelta(seconds=4)
"""How long a call may wait while all workers are ready. Longer: they do not take what they should."""

START_FAILURES = 3
"""In a row. Then it is not the worker, and one more would fail as well."""

FIRST_COOL_DOWN = timedelta(seconds=10)
LONGEST_COOL_DOWN = timedelta(minutes=5)


@dataclass(frozen=True)
class Limits:
    """What the function's owner says."""

    min_workers: int
    max_workers: int
    concurrency: int
    idle_timeout: timedelta

    @property
    def slots(self) -> int:
        """Calls that are planned for one worker."""
        return max(1, int(self.concurrency * UTILISATION))


@dataclass(frozen=True)
class Demand:
    """What the queue says."""

    waiting: int
    running: int
    """Given to a worker and not acknowledged; perhaps to one that is dead."""

    waiting_since: datetime | None = None
    """When the first of those that wait was queued."""

    @property
    def calls(self) -> int:
        return self.waiting + self.running


@dataclass(frozen=True)
class Workers:
    ready: int
    starting: int = 0
    failures: int = 0
    """Starts that came to nothing, since the last that came to something."""

    failed_at: datetime | None = None

    @property
    def there(self) -> int:
        return self.ready + self.starting


@dataclass(frozen=True)
class Peak:
    at: datetime
    wanted: int


@dataclass(frozen=True)
class Decision:
    wanted: int
    peaks: tuple[Peak, ...]
    """To be given to the next decision. Lost with the process, it is only forgotten what was there to be kept."""

    why: str


def plan_scale(
    demand: Demand, workers: Workers, peaks: tuple[Peak, ...], limits: Limits, now: datetime, *, since: datetime
) -> Decision:
    """Rows from top to bottom. *Enough* is what the calls need now; *the most* is the highest that was enough within
    the idle time. `since` is when this was first decided: who has looked for less than the idle time knows nothing of
    what was before, and takes nothing away.

    | starts                   | calls                         | workers                 | wanted                      |
    | ------------------------ | ----------------------------- | ----------------------- | --------------------------- |
    | 3 failures, cooling down | any                           | any                     | no more than are ready      |
    | else                     | need more than are there      | any                     | enough                      |
    | else                     | one waits for longer than 4 s | all ready               | one more, for the idle time |
    | else                     | need fewer                    | seen for less than idle | as many as are there        |
    | else                     | need fewer                    | the most are there      | as many as are there        |
    | else                     | need fewer                    | more than the most      | the most, but at least half |

    Always within the owner's limits.
    """
    enough = enough_for(demand, limits)
    is_late = _is_late(demand, workers, now)
    if is_late:
        enough = min(max(enough, workers.there + 1), limits.max_workers)
    kept = _note(peaks, Peak(now, enough), limits.idle_timeout)
    most = kept[0].wanted
    if (until := cool_until(workers)) is not None and now < until:
        return Decision(
            min(enough, workers.ready), kept, f"{workers.failures} starts failed; not before {until:%H:%M:%S}"
        )
    if enough > workers.there:
        return Decision(enough, kept, "a call waits for too long" if is_late else f"{demand.calls} calls wait or run")
    there = min(workers.there, limits.max_workers)
    if now - since < limits.idle_timeout or most >= there:
        return Decision(there, kept, "as it is")
    return Decision(max(most, min(workers.there // 2, there)), kept, "some had nothing to do for the idle time")


def enough_for(demand: Demand, limits: Limits) -> int:
    """
    | calls | concurrency | limits  | enough |
    | ----- | ----------- | ------- | ------ |
    | 0     | any         | 0 to 4  | 0      |
    | 1     | 1           | 0 to 4  | 1      |
    | 3     | 1           | 0 to 4  | 3      |
    | 100   | 1           | 0 to 4  | 4      |
    | 8     | 10 (7 planned) | 0 to 4 | 2    |
    | 0     | any         | 2 to 4  | 2      |
    """
    needed = -(-demand.calls // limits.slots)
    return min(max(needed, limits.min_workers), limits.max_workers)


def cool_until(workers: Workers) -> datetime | None:
    """When the next start may be tried; twice as late after each further failure."""
    if workers.failures < START_FAILURES or workers.failed_at is None:
        return None
    factor: int = 2 ** min(workers.failures - START_FAILURES, 10)
    return workers.failed_at + min(factor * FIRST_COOL_DOWN, LONGEST_COOL_DOWN)


def _is_late(demand: Demand, workers: Workers, now: datetime) -> bool:
    is_late = demand.waiting_since is not None and now - demand.waiting_since > QUEUE_DELAY
    return demand.waiting > 0 and is_late and workers.starting == 0


def _note(peaks: tuple[Peak, ...], new: Peak, window: timedelta) -> tuple[Peak, ...]:
    """Falling peaks within the window: the first is the highest, and there are never more than workers."""
    higher = [peak for peak in peaks if peak.wanted > new.wanted and new.at - peak.at < window]
    return (*higher, new)
