"""What becomes of an invocation, by its record: in the hands of a worker, when no worker brings it to an end, and how
long its bodies are kept. The queue delivers at least once; the record decides."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from gpu_platform.domain.invocations import Invocation, InvocationState, charged_attempts

EXPIRY_GRACE = timedelta(seconds=10)
"""So that the worker comes first: it can still end what it runs."""

QUEUE_GRACE = timedelta(seconds=30)
"""For whoever has accepted the call to queue it, and for whoever has ended it to say so."""

ORPHAN_GRACE = timedelta(minutes=10)
"""Between the first sight of bodies without a record and their deletion. Bodies are stored before their record, and
accepting an invocation takes seconds."""


class Delivery(Enum):
    LOOK_AGAIN = "give it back for a moment: its record may not have come here yet"
    DROP = "take it from the queue: nothing says that it was accepted"
    DONE = "take it from the queue: it is over"
    CANCEL = "write that it was cancelled"
    BURY = "write that it is a dead letter"
    EXPIRE = "write that it is expired"
    RUN = "run it"
    RUN_ALONE = "run it while this worker runs nothing else"


def plan_delivery(call: Invocation | None, deliveries: int, max_attempts: int, now: datetime) -> Delivery:
    """Rows from top to bottom. `deliveries` counts this one; an attempt is counted when it begins.

    | record                     | deliveries  | deadline | attempts that count | action     |
    | -------------------------- | ----------- | -------- | ------------------- | ---------- |
    | none                       | the first   | –        | –                   | LOOK_AGAIN |
    | none                       | a later one | –        | –                   | DROP       |
    | over                       | any         | any      | any                 | DONE       |
    | its end was asked for      | any         | any      | any                 | CANCEL     |
    | waits or runs              | any         | passed   | any                 | EXPIRE     |
    | waits or runs              | any         | not yet  | all of them         | BURY       |
    | runs, or waits as suspect  | any         | not yet  | less                | RUN_ALONE  |
    | waits                      | any         | not yet  | less                | RUN        |

    The record is written before the message, but it may be read from a server that is a moment behind. Should a
    message be dropped wrongly all the same, the sweep queues its call again.

    A record that runs when its message comes once more belongs to a worker that died, or was silent for too long: its
    late end and that of the next one are both tried, and the first that is written stays. Its attempt counts if it ran
    alone. Beside others it does not count (`charged_attempts`), as any of them may have ended the process. Records of
    versions that did not write down whether an attempt ran alone are read as beside others.

    A message that comes after all attempts have begun is that of a worker that died in the last one. The queue
    delivers without a limit, so that a call always comes to an end by somebody.
    """
    if call is None:
        return Delivery.LOOK_AGAIN if deliveries == 1 else Delivery.DROP
    if call.is_over:
        return Delivery.DONE
    if call.is_cancel_asked:
        return Delivery.CANCEL
    if call.expires_at <= now:
        return Delivery.EXPIRE
    if charged_attempts(call) >= max_attempts:
        return Delivery.BURY
    is_suspect = call.is_alone or call.state is InvocationState.RUNNING
    return Delivery.RUN_ALONE if is_suspect else Delivery.RUN


class Loss(Enum):
    """Why an attempt has no answer, as the worker saw it."""

    NOT_RECEIVED = "no connection to the function's process: it has not seen the call"
    REFUSED = "the function's process answered, but with no result"
    DIED = "the connection to the function's process broke before the answer"


@dataclass(frozen=True)
class PutBack:
    """The invocation waits again."""

    is_charged: bool
    is_alone: bool
    """Whether its next attempt runs alone."""


def plan_loss(call: Invocation, loss: Loss, max_attempts: int, *, had_company: bool) -> PutBack | None:
    """None: it is a dead letter. `had_company`: another call ran in the worker at any time of this attempt.

    | loss         | ran         | attempt        | next attempt | if it was the last one that counts |
    | ------------ | ----------- | -------------- | ------------ | ---------------------------------- |
    | NOT_RECEIVED | any         | does not count | as before    | –                                  |
    | REFUSED      | any         | counts         | as before    | dead letter                        |
    | DIED         | alone       | counts         | alone        | dead letter                        |
    | DIED         | in company  | does not count | alone        | –                                  |

    A call is cut off in company once at most: from then on it runs alone. So the function sees it `max_attempts` + 1
    times at most, however often its process dies. A call that no process receives waits until its deadline.
    """
    is_charged = loss is Loss.REFUSED or (loss is Loss.DIED and not had_company)
    if is_charged and call.attempts >= max_attempts:
        return None
    return PutBack(is_charged, is_alone=call.is_alone or loss is Loss.DIED)


class Sweep(Enum):
    NOTHING = "leave it"
    CANCEL_DELETED = "write that it was cancelled: its function is gone"
    CANCEL = "write that it was cancelled: nobody is left to be asked"
    EXPIRE = "write that it is expired"
    ENQUEUE = "queue it again"


def plan_sweep(
    call: Invocation,
    *,
    is_in_queue: bool,
    function_exists: bool,
    now: datetime,
    queue_grace: timedelta = QUEUE_GRACE,
) -> Sweep:
    """Rows from top to bottom.

    | record                          | its function | its deadline       | in the queue | action         |
    | ------------------------------- | ------------ | ------------------ | ------------ | -------------- |
    | over                            | any          | any                | any          | NOTHING        |
    | waits or runs                   | gone         | any                | any          | CANCEL_DELETED |
    | waits or runs                   | there        | passed for a while | any          | EXPIRE         |
    | its end was asked for           | there        | not yet            | no           | CANCEL         |
    | waits or runs for a while       | there        | not yet            | no           | ENQUEUE        |
    | any other                       | there        | not yet            | any          | NOTHING        |

    A message that was queued twice does no harm, and one call too few in the queue is a call that never ends: in
    doubt it is queued.
    """
    if call.is_over:
        return Sweep.NOTHING
    if not function_exists:
        return Sweep.CANCEL_DELETED
    if call.expires_at <= now - EXPIRY_GRACE:
        return Sweep.EXPIRE
    if is_in_queue:
        return Sweep.NOTHING
    if call.is_cancel_asked:
        return Sweep.CANCEL
    return Sweep.ENQUEUE if last_step_at(call) <= now - queue_grace else Sweep.NOTHING


def last_step_at(call: Invocation) -> datetime:
    return call.started_at or call.accepted_at


class BodyRetention(Enum):
    KEEP = "the invocation is not over"
    KEEP_FOR_CALLER = "as long as the record is kept"
    DELETE = "delete them"


def plan_bodies(call: Invocation | None, orphan_since: datetime | None, now: datetime) -> BodyRetention:
    """Decides by the record. `orphan_since`: when its bodies were first seen without one.

    | record                 | payload is needed for | result is needed for | decision        |
    | ---------------------- | --------------------- | -------------------- | --------------- |
    | none, for a moment     | it may be accepted    | nothing              | KEEP            |
    | none, for ORPHAN_GRACE | nothing               | nothing              | DELETE          |
    | queued, running        | the next attempt      | a worker stores it   | KEEP            |
    | succeeded, failed      | a retry               | its caller           | KEEP_FOR_CALLER |
    | expired, dead_lettered | a retry, a redrive    | nothing: has none    | KEEP_FOR_CALLER |
    | cancelled              | nothing               | nothing: has none    | DELETE          |
    """
    if call is None:
        is_orphan = orphan_since is not None and now - orphan_since >= ORPHAN_GRACE
        return BodyRetention.DELETE if is_orphan else BodyRetention.KEEP
    if call.state is InvocationState.CANCELLED:
        return BodyRetention.DELETE
    return BodyRetention.KEEP_FOR_CALLER if call.is_over else BodyRetention.KEEP
