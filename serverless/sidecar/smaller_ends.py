"""Ends of a call whose record would not fit: with less and less of it."""

from collections.abc import Callable
from typing import Any

from gpu_platform.domain.invocations import Invocation, InvocationResult, InvocationState

LONGEST_REASON = 500

End = Callable[[Invocation], Invocation]


def without_the_answer(end: End, error: str, call: Invocation) -> Invocation:
    """Its headers or its error are too large: a large body is stored elsewhere."""
    over = end(call)
    if over.result is None:
        return over
    result = InvocationResult(status_code=500, error=f"the answer is too large: {error}"[:LONGEST_REASON])
    return over.model_copy(update={"state": InvocationState.FAILED, "result": result, "result_body": None})


def bare(end: End, error: str, call: Invocation) -> Invocation:
    """The last resort: that it has ended, and why."""
    over = end(call)
    nothing: dict[str, Any] = {"headers": {}, "attributes": {}, "payload": None, "result": None, "result_body": None}
    return over.model_copy(update={**nothing, "reason": (over.reason or f"TooLarge: {error}")[:LONGEST_REASON]})
