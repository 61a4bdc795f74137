"""What a worker does with a message that the queue hands out. The queue hands out at least once; the record decides."""

from datetime import datetime
from enum import Enum

from gpu_platform.domain.invocations import Invocation


class Delivery(Enum):
    LOOK_AGAIN = "give it back for a moment: its record may not have come here yet"
    DROP = "take it from the queue: nothing says that it was accepted"
    DONE = "take it from the queue: it is over"
    CANCEL = "write that it was cancelled"
    BURY = "write that it is a dead letter"
    EXPIRE = "write that it is expired"
    RUN = "run it"


def plan_delivery(call: Invocation | None, deliveries: int, max_attempts: int, now: datetime) -> Delivery:
    """Rows from top to bottom. `deliveries` counts this one; an attempt is counted when it begins.

    | record                  | deliveries  | deadline | attempts so far  | action     |
    | ----------------------- | ----------- | -------- | ---------------- | ---------- |
    | none                    | the first   | –        | –                | LOOK_AGAIN |
    | none                    | a later one | –        | –                | DROP       |
    | over                    | any         | any      | any              | DONE       |
    | its end was asked for   | any         | any      | any              | CANCEL     |
    | waits or runs           | any         | passed   | any              | EXPIRE     |
    | waits or runs           | any         | not yet  | all of them      | BURY       |
    | waits or runs           | any         | not yet  | less             | RUN        |

    The record is written before the message, but it may be read from a server that is a moment behind. Should a
    message be dropped wrongly all the same, the sweep queues its call again.

    A record that runs when its message comes once more belongs to a worker that died, or was silent for too long: its
    late end and that of the next one are both tried, and the first that is written stays.

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
    return Delivery.BURY if call.attempts >= max_attempts else Delivery.RUN
