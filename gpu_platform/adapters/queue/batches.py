"""Many messages of a stream by one request, from a sequence on. Nothing is left behind on the server for it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext

from gpu_platform.adapters.queue.core import connected_core_of
from gpu_platform.nats.errors import QueueUnavailableError, translated

ANSWER_SECONDS = 5.0
BATCH_BYTES = 8 << 20
"""Of one answer, and a message more at most."""

END_OF_BATCH, NOT_FOUND = "204", "404"


@dataclass(frozen=True)
class StoredMessage:
    subject: str
    sequence: int
    stored_at: datetime
    data: bytes


@dataclass(frozen=True)
class Batch:
    messages: tuple[StoredMessage, ...]
    pending: int
    """Messages on these subjects after it."""

    @property
    def is_last(self) -> bool:
        return self.pending == 0


async def read_batch(js: JetStreamContext, stream: str, subject: str, sequence: int, limit: int) -> Batch:
    """The messages on these subjects, in the order in which they were stored."""
    asked = {"seq": max(sequence, 1), "next_by_subj": subject, "batch": limit, "max_bytes": BATCH_BYTES}
    messages = []
    async with _asked(js, f"$JS.API.DIRECT.GET.{stream}", json.dumps(asked).encode()) as answers:
        while True:
            with translated():
                answer = await answers.next_msg(timeout=ANSWER_SECONDS)
            headers = answer.headers or {}
            status = headers.get("Status")
            if status is None:
                messages.append(_as_stored(answer, headers))
            elif status == END_OF_BATCH:
                return Batch(tuple(messages), int(headers.get("Nats-Num-Pending", "0")))
            elif status == NOT_FOUND:
                return Batch(tuple(messages), pending=0)
            else:
                raise QueueUnavailableError(f"NATS does not hand out {stream}: {status}")


@asynccontextmanager
async def _asked(js: JetStreamContext, subject: str, question: bytes) -> AsyncIterator[Subscription]:
    client = connected_core_of(js)
    inbox = client.new_inbox()
    with translated():
        answers = await client.subscribe(inbox)
    try:
        with translated():
            await client.publish(subject, question, reply=inbox)
        yield answers
    finally:
        with translated():
            await answers.unsubscribe()


def _as_stored(answer: Msg, headers: dict[str, str]) -> StoredMessage:
    return StoredMessage(
        subject=headers["Nats-Subject"],
        sequence=int(headers["Nats-Sequence"]),
        stored_at=datetime.fromisoformat(headers["Nats-Time-Stamp"]),
        data=answer.data,
    )
