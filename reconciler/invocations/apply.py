"""Ends are written as everybody writes them: of the record as it is now, and the first one stays."""

from collections.abc import Callable
from datetime import datetime

from gpu_platform.domain.invocations import Invocation, call_off, expire, without_contents
from gpu_platform.domain.sweep_plan import Sweep, last_step_at
from gpu_platform.nats.errors import OutdatedError, TooLargeError
from gpu_platform.nats.records import Records, Seen


async def apply_sweep(records: Records, call: Invocation, action: Sweep, now: datetime) -> bool:
    """Whether it was done; if not, somebody else was faster, and the next look shows what is left to do."""
    seen = await records.find(call.tenant, call.id, call.function)
    if seen is None or seen.call.is_over or last_step_at(seen.call) != last_step_at(call):
        return False
    if action is Sweep.ENQUEUE:
        await records.enqueue(seen.call)
        return True
    try:
        await _end(records, seen, action, now)
    except OutdatedError:
        return False
    await records.unqueue(seen.call)
    return True


async def _end(records: Records, seen: Seen, action: Sweep, now: datetime) -> None:
    end = _end_of(action)
    try:
        await records.change(seen, end(seen.call, now))
    except TooLargeError:
        # An end without its contents is better than none.
        await records.change(seen, end(without_contents(seen.call), now))


def _end_of(action: Sweep) -> Callable[[Invocation, datetime], Invocation]:
    match action:
        case Sweep.CANCEL_DELETED:
            return lambda call, now: call_off(call, "FunctionDeleted", now)
        case Sweep.CANCEL:
            return lambda call, now: call_off(call, "Cancelled", now)
        case Sweep.EXPIRE:
            return expire
    raise ValueError(f"{action} is no end")
