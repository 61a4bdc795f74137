"""What a worker does with a message that the queue hands out, and with a call that got no answer. The queue hands out
at least once; the record decides."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from gpu_platform.domain.invocations import Invocation, InvocationState, charged_attempts


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
