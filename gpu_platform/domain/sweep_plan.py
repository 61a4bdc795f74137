"""What becomes of a call that its worker does not bring to an end, because there is none or its message was lost."""

from datetime import datetime, timedelta
from enum import Enum

from gpu_platform.domain.invocations import Invocation

EXPIRY_GRACE = timedelta(seconds=10)
"""So that the worker comes first: it can still end what it runs."""

QUEUE_GRACE = timedelta(seconds=30)
"""For whoever has accepted the call to queue it, and for whoever has ended it to say so."""


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
