"""The guarded writes of records: one per id, each change of the record as it was seen, and no second end."""

import json
from dataclasses import dataclass
from datetime import timedelta

from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from gpu_platform.adapters.queue.errors import OutdatedError, TooLargeError, translated
from gpu_platform.adapters.queue.layout import LARGEST_RECORD
from gpu_platform.domain.invocations import Invocation
from gpu_platform.domain.queue_subjects import RECORDS, queue_subject, record_subject

EXPECTED_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
WRITE_SECONDS = 5.0


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
        self._retention = retention

    async def accept(self, call: Invocation) -> Accepted:
        """One record per tenant and id, whatever function it is for; the first one stays."""
        subject = record_subject(call.tenant, call.id, call.function)
        of_the_id = record_subject(call.tenant, call.id, "*")
        try:
            revision = await self._write(call, {EXPECTED_SEQUENCE: "0", EXPECTED_SUBJECT: of_the_id}, subject)
            return Accepted(Seen(call, revision), is_new=True)
        except OutdatedError:
            known = await self.find(call.tenant, call.id)
            if known is None:
                # It went in this moment, some time after its end.
                raise
            return Accepted(known, is_new=False)

    async def find(self, tenant: str, invocation_id: str) -> Seen | None:
        with translated():
            try:
                found = await self._js.get_last_msg(RECORDS, record_subject(tenant, invocation_id, "*"))
            except NotFoundError:
                return None
        if not found.data or found.seq is None:
            return None
        return Seen(Invocation.model_validate_json(found.data), found.seq)

    async def change(self, seen: Seen, call: Invocation) -> Seen:
        """OutdatedError: somebody else changed it first; nothing was written."""
        if seen.call.is_over:
            raise OutdatedError(f"the invocation {call.id} is over")
        subject = record_subject(call.tenant, call.id, call.function)
        return Seen(call, await self._write(call, {EXPECTED_SEQUENCE: str(seen.revision)}, subject))

    async def enqueue(self, call: Invocation) -> None:
        """Twice is fine: what is over when it is taken is taken from the queue and not run."""
        with translated():
            await self._js.publish(queue_subject(call.tenant, call.function, call.id), timeout=WRITE_SECONDS)

    async def _write(self, call: Invocation, guard: dict[str, str], subject: str) -> int:
        body = json.dumps(call.to_json(), separators=(",", ":"), ensure_ascii=False).encode()
        if len(body) > LARGEST_RECORD:
            raise TooLargeError(f"the record of {call.id} has {len(body)} bytes; there is room for {LARGEST_RECORD}")
        with translated():
            written = await self._js.publish(
                subject,
                body,
                timeout=WRITE_SECONDS,
                headers=guard,
                msg_ttl=self._retention.total_seconds() if call.is_over else None,
            )
        return written.seq
