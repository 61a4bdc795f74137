"""The guarded writes of invocations' records: one record per id, each change by compare-and-swap, and no second end.

Each write is followed by a hint, which wakes those who wait for the invocation to change. Hints are not waited for; one
that is lost costs a second, after which a waiter reads the record in any case.
"""

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

import nats.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from gpu_platform.clock import wait_at_most
from gpu_platform.domain.invocations import Invocation
from gpu_platform.nats.connection import core_of, subscribed
from gpu_platform.nats.errors import OutdatedError, TooLargeError, UnreadableError, translated
from gpu_platform.nats.streams import LARGEST_RECORD, find_message
from gpu_platform.nats.subjects import QUEUE, RECORDS, changed_subject, queue_subject, record_subject, wake_subject

LOOK_SECONDS = 1.0

IS_OVER = b"over"
"""What a hint says of a call that has come to its end. It is not believed, but looked at."""

_Place = tuple[str, str | None]
log = logging.getLogger(__name__)
EXPECTED_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
ABSENT = "0"
WRITE_SECONDS = 5.0

DELETED_SECONDS = 1.0
"""The shortest lifetime of a message that JetStream has."""

ROOM_TO_END = 128 << 10
"""Bytes that a new record leaves free: whatever is accepted can also be ended."""


class Waiter:
    def __init__(self) -> None:
        self._event = asyncio.Event()

    def wake(self) -> None:
        self._event.set()

    async def wait(self, seconds: float = LOOK_SECONDS) -> None:
        """Until there may be something new. A hint that came since the last time counts."""
        await wait_at_most(seconds, self._event)
        self._event.clear()


@asynccontextmanager
async def follow_wakes(js: JetStreamContext, wake: Callable[[str, str], None]) -> AsyncIterator[None]:
    """Told of tenant and function of every call that is queued, while the block runs."""

    async def take(message: Msg) -> None:
        tenant, function = message.subject.split(".")[-2:]
        wake(tenant, function)

    async with subscribed(core_of(js), wake_subject("*", "*"), take):
        yield


class Hints:
    """One subscription for all who wait in this process."""

    def __init__(self) -> None:
        self._waiters: dict[_Place, set[Waiter]] = defaultdict(set)

    async def follow(self, js: JetStreamContext) -> None:
        """For as long as the connection lives."""
        with translated():
            await core_of(js).subscribe(changed_subject("*", "*", "*"), cb=self._take)

    @contextmanager
    def waiting(self, tenant: str, invocation_id: str | None = None) -> Iterator[Waiter]:
        """For the end of one call, or (without an id) for any change of any of the tenant's."""
        place, waiter = (tenant, invocation_id), Waiter()
        self._waiters[place].add(waiter)
        try:
            yield waiter
        finally:
            self._waiters[place].discard(waiter)
            if not self._waiters[place]:
                del self._waiters[place]

    async def _take(self, message: Msg) -> None:
        tenant, _, invocation_id = message.subject.split(".")[-3:]
        concerned: tuple[_Place, ...] = ((tenant, None),)
        if message.data == IS_OVER:
            concerned = (*concerned, (tenant, invocation_id))
        for place in concerned:
            for waiter in self._waiters.get(place, ()):
                waiter.wake()


@dataclass(frozen=True)
class Seen:
    """A record, and which version of it."""

    call: Invocation
    revision: int


@dataclass(frozen=True)
class Accepted:
    seen: Seen
    is_new: bool


class Records:
    def __init__(self, js: JetStreamContext, retention: timedelta) -> None:
        self._js = js
        self.retention = retention
        """How long a record is kept after its end."""

    async def accept(self, call: Invocation, payload: bytes | None = None) -> Accepted:
        """One record per tenant and id, for any function; the first one stays. A `payload` is JSON that becomes a part
        of the record as it is, in place of the call's own."""
        of_the_id = record_subject(call.tenant, call.id, "*")
        try:
            guard = {EXPECTED_SEQUENCE: ABSENT, EXPECTED_SUBJECT: of_the_id}
            return Accepted(await self._write(call, guard, LARGEST_RECORD - ROOM_TO_END, payload), is_new=True)
        except OutdatedError:
            known = await self.find(call.tenant, call.id, call.function) or await self.find(call.tenant, call.id)
            if known is None:
                # It went in this moment, some time after its end.
                raise
            return Accepted(known, is_new=False)

    async def find(
        self, tenant: str, invocation_id: str, function: str | None = None, *, direct: bool = False
    ) -> Seen | None:
        """As the leader of the stream knows it. With `direct` any server answers, which may be a moment behind;
        whoever may see one function's records only can ask in no other way, and names the function.

        Whoever knows the function names it: its workers can write records of their own function only, but with any
        id."""
        subject = record_subject(tenant, invocation_id, function or "*")
        found = await find_message(self._js, RECORDS, subject, direct=direct)
        if found is None or not found.data or found.seq is None:
            return None
        return read_record(found.subject or subject, found.data, found.seq)

    async def change(self, seen: Seen, call: Invocation) -> Seen:
        """OutdatedError: somebody else changed it first; nothing was written."""
        if seen.call.is_over:
            raise OutdatedError(f"the invocation {call.id} is over")
        return await self._write(call, {EXPECTED_SEQUENCE: str(seen.revision)})

    async def delete(self, seen: Seen) -> None:
        """Replaces the record by an empty message, which the server deletes after a second. OutdatedError: another
        writer changed it first; nothing was written."""
        call = seen.call
        with translated():
            await self._js.publish(
                record_subject(call.tenant, call.id, call.function),
                timeout=WRITE_SECONDS,
                headers={EXPECTED_SEQUENCE: str(seen.revision)},
                msg_ttl=DELETED_SECONDS,
            )
        await self._hint(changed_subject(call.tenant, call.function, call.id), IS_OVER)

    async def enqueue(self, call: Invocation) -> None:
        """If it is not there. Twice is fine also then: what is over when it is taken is not run."""
        subject = queue_subject(call.tenant, call.function, call.id)
        with suppress(OutdatedError), translated():
            await self._js.publish(subject, timeout=WRITE_SECONDS, headers={EXPECTED_SEQUENCE: ABSENT})
        await self._hint(wake_subject(call.tenant, call.function))

    async def unqueue(self, call: Invocation) -> None:
        """It makes room at once. Whoever takes it all the same finds that it is over."""
        with translated():
            await self._js.purge_stream(QUEUE, subject=queue_subject(call.tenant, call.function, call.id))

    async def _write(
        self, call: Invocation, guard: dict[str, str], room: int = LARGEST_RECORD, payload: bytes | None = None
    ) -> Seen:
        body, call = _encode(call, payload)
        if len(body) > room:
            raise TooLargeError(f"the record of {call.id} has {len(body)} bytes; there is room for {room}")
        with translated():
            written = await self._js.publish(
                record_subject(call.tenant, call.id, call.function),
                body,
                timeout=WRITE_SECONDS,
                headers=guard,
                msg_ttl=self.retention.total_seconds() if call.is_over else None,
            )
        await self._hint(changed_subject(call.tenant, call.function, call.id), IS_OVER if call.is_over else b"")
        return Seen(call, written.seq)

    async def _hint(self, subject: str, word: bytes = b"") -> None:
        with suppress(nats.errors.Error):
            await core_of(self._js).publish(subject, word)


def read_record(subject: str, data: bytes, sequence: int) -> Seen | None:
    """None for what is no record, or one of another place: workers are not trusted, and what one of them has written
    must not stop those who look at everybody's."""
    try:
        call = Invocation.model_validate_json(data)
    except (ValueError, RecursionError) as error:
        _skip(subject, sequence, type(error).__name__)
        return None
    if record_subject(call.tenant, call.id, call.function) != subject:
        _skip(subject, sequence, "it is the record of another call")
        return None
    return Seen(call, sequence)


def _skip(subject: str, sequence: int, problem: str) -> None:
    log.warning("invocations.unreadable", extra={"subject": subject, "sequence": sequence, "error": problem})


def _encode(call: Invocation, payload: bytes | None) -> tuple[bytes, Invocation]:
    """The record, and the call as it is read from it."""
    try:
        fields = call if payload is None else call.model_copy(update={"payload": None})
        body = json.dumps(fields.to_json(), separators=(",", ":"), ensure_ascii=False).encode()
        if payload is not None:
            body = b"".join((body[:-1], b',"payload":', payload, b"}"))
        return body, Invocation.model_validate_json(body)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(
            f"the record of {call.id} could not be read again: it is nested too deeply, or has text that is no Unicode"
        ) from error
