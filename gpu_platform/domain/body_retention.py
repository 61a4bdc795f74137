"""How long the bodies of an invocation are kept beside its record."""

from datetime import datetime, timedelta
from enum import Enum

from gpu_platform.domain.invocations import Invocation, InvocationState

ORPHAN_GRACE = timedelta(minutes=10)
"""Between the first sight of bodies without a record and their deletion. Bodies are stored before their record, and
accepting an invocation takes seconds."""


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
