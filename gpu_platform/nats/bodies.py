"""Bodies that are too large for a record: in chunks, written before the record that refers to them."""

import asyncio
import hashlib
import time
from datetime import timedelta

from nats.js import JetStreamContext

from gpu_platform.domain.invocations import BodyReference, Invocation
from gpu_platform.nats.errors import translated
from gpu_platform.nats.streams import find_message
from gpu_platform.nats.subjects import BODIES, CHUNK_BYTES, body_subject

WRITE_SECONDS = 5.0

SPARE = timedelta(hours=1)
"""A body stays for longer than the record that refers to it, also when that one ends late."""

MISSING_SECONDS = 2.0
"""How long a chunk is looked for: any server may answer, and one of them may be a moment behind."""

LOOK_SECONDS = 0.1

REQUEST, RESULT = "request", "result"


class MissingBodyError(Exception):
    """Not all of it is there, or it is another one."""


class Bodies:
    def __init__(self, js: JetStreamContext, retention: timedelta) -> None:
        self._js = js
        self._retention = retention

    async def put_payload(self, call: Invocation, content: bytes) -> BodyReference:
        """For as long as the call may take, and as its record is kept after that."""
        return await self._put(call, REQUEST, content, call.expires_at - call.accepted_at + self._retention + SPARE)

    async def put_result(self, call: Invocation, content: bytes) -> BodyReference:
        return await self._put(call, RESULT, content, self._retention + SPARE)

    async def get_payload(self, call: Invocation, reference: BodyReference) -> bytes:
        return await self._get(call, REQUEST, reference)

    async def get_result(self, call: Invocation, reference: BodyReference) -> bytes:
        return await self._get(call, RESULT, reference)

    async def delete(self, call: Invocation) -> None:
        """Deletes the payload and every result of an invocation; idempotent."""
        await delete_bodies(self._js, call.tenant, call.function, call.id)

    async def _put(self, call: Invocation, part: str, content: bytes, lifetime: timedelta) -> BodyReference:
        """Twice is fine: it is the same then."""
        chunks = [content[start : start + CHUNK_BYTES] for start in range(0, len(content), CHUNK_BYTES)] or [b""]
        reference = BodyReference(digest=_digest(content), size=len(content), chunks=len(chunks))
        for number, chunk in enumerate(chunks):
            with translated():
                await self._js.publish(
                    _chunk_subject(call, part, reference, number),
                    chunk,
                    timeout=WRITE_SECONDS,
                    msg_ttl=lifetime.total_seconds(),
                )
        return reference

    async def _get(self, call: Invocation, part: str, reference: BodyReference) -> bytes:
        content = bytearray()
        until = time.monotonic() + MISSING_SECONDS
        for number in range(reference.chunks):
            subject = _chunk_subject(call, part, reference, number)
            while (chunk := await self._find_chunk(subject)) is None:
                if time.monotonic() >= until:
                    raise MissingBodyError(f"a part of the {part} of {call.id} is no longer there")
                await asyncio.sleep(LOOK_SECONDS)
            content += chunk
            if len(content) > reference.size:
                break
        if _digest(content) != reference.digest:
            raise MissingBodyError(f"the {part} of {call.id} is not what was stored")
        return bytes(content)

    async def _find_chunk(self, subject: str) -> bytes | None:
        found = await find_message(self._js, BODIES, subject, direct=True)
        return None if found is None else found.data or b""


async def delete_bodies(
    js: JetStreamContext,
    tenant: str,
    function: str,
    invocation_id: str = "*",
    part: str = "*",
    *,
    below: int | None = None,
) -> None:
    """Deletes the bodies of one invocation, or of all of a function; idempotent. `below`: only chunks below this
    sequence."""
    with translated():
        await js.purge_stream(BODIES, seq=below, subject=body_subject(tenant, function, invocation_id, part, "*"))


def _digest(content: bytes | bytearray) -> str:
    return hashlib.sha256(content).hexdigest()


def _chunk_subject(call: Invocation, part: str, reference: BodyReference, number: int) -> str:
    return body_subject(call.tenant, call.function, call.id, part, f"{reference.digest}-{number}")
