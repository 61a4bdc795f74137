"""Records and messages of the queue, many at a time.

Records come in the order of their last change. A record that changes while somebody reads page after page comes once
more; none is left out. So whoever goes on from the last sequence again and again sees every change, or the one after
it.

They come without what may be large (see `without_contents`): many of them are in memory at once.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.errors import APIError

from gpu_platform.domain.invocations import without_contents
from gpu_platform.nats.connection import connected_core_of, subscribed
from gpu_platform.nats.errors import QueueUnavailableError, translated
from gpu_platform.nats.records import Seen, read_record
from gpu_platform.nats.subjects import (
    BODIES,
    BODY_PREFIX,
    CHUNK_BYTES,
    QUEUE,
    RECORDS,
    body_subject,
    queue_subject,
    record_subject,
)

EVERYBODY = "*"
BATCH = 256

LARGE_RECORD = 16 << 10
"""Bytes. After a larger one other tasks get their turn: to read it takes up to some milliseconds."""

ANSWER_SECONDS = 5.0

BATCH_BYTES = 8 << 20
"""Of one answer, and a message more at most."""

END_OF_BATCH, NOT_FOUND = "204", "404"


@dataclass(frozen=True)
class Page:
    seen: tuple[Seen, ...]
    scanned: int
    """With those that nobody can read."""

    next_sequence: int
    """Where the next page begins."""

    is_last: bool
    """There was nothing more to read. There may be some other time."""


@dataclass(frozen=True)
class Queued:
    """A message of the queue."""

    tenant: str
    function: str
    invocation_id: str
    sequence: int
    queued_at: datetime


@dataclass(frozen=True)
class TenantUsage:
    """What one tenant's invocations take in JetStream."""

    records: int
    body_bytes: int
    """An upper bound: every chunk counts as a full one, and all together as no more than the stream holds."""

    def __add__(self, other: "TenantUsage") -> "TenantUsage":
        return TenantUsage(self.records + other.records, self.body_bytes + other.body_bytes)

    def __sub__(self, other: "TenantUsage") -> "TenantUsage":
        return TenantUsage(self.records - other.records, self.body_bytes - other.body_bytes)


@dataclass(frozen=True)
class StoredBodies:
    """The invocations that have bodies, by tenant, function and id."""

    owners: frozenset[tuple[str, str, str]]
    next_sequence: int
    """Of the first chunk that is stored after this look."""


class Listing:
    def __init__(self, js: JetStreamContext) -> None:
        self._js = js

    async def read_page(self, tenant: str, sequence: int, *, function: str | None = None, limit: int = BATCH) -> Page:
        """Of a tenant's records (or EVERYBODY's), from this sequence on. To change one, find it first."""
        subject = record_subject(tenant, "*", function or "*")
        batch = await read_batch(self._js, RECORDS, subject, sequence, limit)
        seen: list[Seen] = []
        for each in batch.messages:
            if each.data and (one := read_record(each.subject, each.data, each.sequence)) is not None:
                seen.append(Seen(without_contents(one.call), one.revision))
            if len(each.data) > LARGE_RECORD:
                await asyncio.sleep(0)
        next_sequence = batch.messages[-1].sequence + 1 if batch.messages else sequence
        return Page(tuple(seen), len(batch.messages), next_sequence, batch.is_last)

    async def find_end(self) -> int:
        """The sequence of the next change."""
        with translated():
            info = await self._js.stream_info(RECORDS)
        return int(info.state.last_seq) + 1

    async def read_fill(self) -> float:
        """How full the stream of records is: 1 is full."""
        with translated():
            info = await self._js.stream_info(RECORDS)
        limit = info.config.max_bytes or 0
        return int(info.state.bytes) / limit if limit > 0 else 0.0

    async def measure_tenant(self, tenant: str) -> TenantUsage:
        """Asks for the first message in each stream, which comes with the number of the others; lists nothing."""
        records = await read_batch(self._js, RECORDS, record_subject(tenant, "*", "*"), 1, 1)
        bodies = await read_batch(self._js, BODIES, f"{BODY_PREFIX}.{tenant}.>", 1, 1)
        chunks = len(bodies.messages) + bodies.pending
        with translated():
            info = await self._js.stream_info(BODIES)
        body_bytes = min(chunks * CHUNK_BYTES, int(info.state.bytes))
        return TenantUsage(len(records.messages) + records.pending, body_bytes)

    async def read_bodies(self) -> StoredBodies:
        """Which invocations have bodies: at most 100,000 chunks, as many as the server lists at once."""
        with translated():
            info = await self._js.stream_info(BODIES, subjects_filter=body_subject("*", "*", "*", "*", "*"))
        owners = set()
        for subject in info.state.subjects or {}:
            tenant, function, invocation_id = subject.split(".")[-5:-2]
            owners.add((tenant, function, invocation_id))
        return StoredBodies(frozenset(owners), int(info.state.last_seq) + 1)

    async def read_queue(self) -> tuple[Queued, ...]:
        """All of it."""
        found: list[Queued] = []
        async for each in read_all(self._js, QUEUE, queue_subject("*", "*", "*")):
            tenant, function, invocation_id = each.subject.split(".")[-3:]
            found.append(Queued(tenant, function, invocation_id, each.sequence, each.stored_at))
        return tuple(found)

    async def remove_queued(self, queued: Queued) -> None:
        """That very message. Twice is fine."""
        with translated():
            try:
                await self._js.delete_msg(QUEUE, queued.sequence)
            except APIError:
                # Somebody else took it.
                return


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
    client = connected_core_of(js)
    inbox = client.new_inbox()
    async with subscribed(client, inbox) as answers:
        with translated():
            await client.publish(f"$JS.API.DIRECT.GET.{stream}", json.dumps(asked).encode(), reply=inbox)
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


async def read_all(
    js: JetStreamContext, stream: str, subject: str, sequence: int = 1, limit: int = BATCH
) -> AsyncIterator[StoredMessage]:
    """From this sequence on, `limit` of them in memory at once."""
    while True:
        batch = await read_batch(js, stream, subject, sequence, limit)
        for message in batch.messages:
            yield message
        if batch.is_last or not batch.messages:
            return
        sequence = batch.messages[-1].sequence + 1


def _as_stored(answer: Msg, headers: dict[str, str]) -> StoredMessage:
    return StoredMessage(
        subject=headers["Nats-Subject"],
        sequence=int(headers["Nats-Sequence"]),
        stored_at=datetime.fromisoformat(headers["Nats-Time-Stamp"]),
        data=answer.data,
    )
