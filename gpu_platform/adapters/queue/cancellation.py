"""Being cancelled while a question to NATS is under way."""

import asyncio


def obey_cancellation() -> None:
    """For loops that go on after a failed question: the client may have taken our own cancellation for a time-out."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
