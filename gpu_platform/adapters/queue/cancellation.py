"""Being cancelled while a question to NATS is under way."""

import asyncio


def obey_cancellation() -> None:
    """For loops, after each question: the client may have taken our own cancellation for a time-out, or have lost it
    because the answer came in the same moment. Who does not obey then goes on for ever.

    `asyncio.wait_for` of Python 3.11 does the latter: whoever is cancelled in the turn of the loop in which the awaited
    thing ends gets its result, or its error, and never hears of the cancellation."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
