"""What a worker does with a message that the queue hands out. The queue hands out at least once; the record decides."""

from datetime import datetime
from enum import Enum

from gpu_platform.domain.invocations import Invocation


class Delivery(Enum):
    DROP = "take it from the queue: nothing says that it was accepted"
    DONE = "take it from the queue: it is over"
    CANCEL = "write that it was cancelled"
    BURY = "write that it is a dead letter"
    EXPIRE = "write that it is expired"
    RUN = "run it"


def plan_delivery(call: Invocation | None, deliveries: int, max_attempts: int, now: datetime) -> Delivery:
    """Rows from top to bottom. `deliveries` counts this one.

    | record                  | deliveries       | deadline | action |
    | ----------------------- | ---------------- | -------- | ------ |
    | none                    | any              | –        | DROP   |
    | over                    | any              | any      | DONE   |
    | its end was asked for   | any              | any      | CANCEL |
    | waits or runs           | any              | passed   | EXPIRE |
    | waits or runs           | beyond the limit | not yet  | BURY   |
    | waits or runs           | within the limit | not yet  | RUN    |

    A record that runs when its message comes once more belongs to a worker that died, or was silent for too long: its
    late end and that of the next one are both tried, and the first that is written stays.

    A delivery beyond the limit comes when the worker of the last attempt died: the consumer delivers twice more than
    there are attempts, so that a call always comes to an end by somebody.
    """
    if call is None:
        return Delivery.DROP
    if call.is_over:
        return Delivery.DONE
    if call.is_cancel_asked:
        return Delivery.CANCEL
    if call.expires_at is not None and call.expires_at <= now:
        return Delivery.EXPIRE
    return Delivery.BURY if deliveries > max_attempts else Delivery.RUN
