"""Whether NATS keeps what it is given: a small write to each stream, again and again, and the servers' own settings.

A stream of nats-server whose disk was full refuses every write until the server is restarted, also once the disk has
room again. It acknowledges no write then, and answers everything else, so that only a write shows it. Whether the
servers keep what they acknowledge through a power cut of them all, their configuration says.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import nats.errors
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js.errors import APIError, NoStreamResponseError, ServerError

from gpu_platform.nats.connection import ANSWER_SECONDS, QueueAccess, connected_core_of, obey_cancellation, open_client
from gpu_platform.nats.errors import QueueFullError, QueueUnavailableError, translated, without_path
from gpu_platform.nats.permissions import SERVERS, QueueUser, inbox_prefix_of
from gpu_platform.nats.subjects import BODIES, BODY_PREFIX, QUEUE, QUEUE_PREFIX, RECORD_PREFIX, RECORDS

log = logging.getLogger(__name__)

PROBES = {RECORDS: f"{RECORD_PREFIX}.probe", QUEUE: f"{QUEUE_PREFIX}.probe", BODIES: f"{BODY_PREFIX}.probe"}
"""Subjects by stream. Those of calls have more tokens: no list, consumer or sweep sees a probe."""

ACKNOWLEDGED_SECONDS = 2
"""For one write. It takes milliseconds, on a busy disk tenths of a second."""

INTERVAL_SECONDS = 5.0

DOUBT_SECONDS = 1.0
"""Between two probes, and after one that failed."""

NO_ROOM = ("no space left", "disk quota exceeded", "file too large")
"""What file systems say when they are full, or when the server may write no more."""

NO_ACKNOWLEDGEMENT = "no acknowledgement"
NO_STREAM = "no stream answers"

QUIET_SECONDS = 1.0
"""Nobody knows how many servers there are: who has not answered after this much silence is not there."""

ENOUGH_REPLICAS = 3
"""A majority of as many has each message, in memory at least: not all of them lose their power at once."""


@dataclass(frozen=True)
class Probe:
    failed: Mapping[str, str] = field(default_factory=dict)
    """Streams that did not store the write, and why."""

    cause: str | None = None
    """What the server said about its storage, if it said something."""


def judge_storage(last: Probe, before: Probe) -> str | None:
    """Why no call can be accepted; None when calls can.

    | last probe                              | the one before | verdict                                       |
    | --------------------------------------- | -------------- | --------------------------------------------- |
    | every stream stored it                  | any            | none                                          |
    | not stored, the server says "no space"  | any            | storage full, in the server's words           |
    | not stored, the server says otherwise   | any            | storage failing, in the server's words        |
    | not stored, without a word about it     | stored         | none: a slow write or a change of the leader  |
    | no stream answers, or it refuses        | failed         | that                                          |
    | no acknowledgement                      | failed         | storage full or failing: which was not seen   |

    A stream that has reached its own limit is not judged here: the call that meets the limit is told so.
    """
    if not last.failed or (last.cause is None and not before.failed):
        return None
    streams = ", ".join(sorted(last.failed))
    if last.cause is not None:
        kind = "full" if any(words in last.cause for words in NO_ROOM) else "failing"
        return f"NATS stores nothing in {streams}: storage {kind} ({last.cause})"
    others = sorted({why for why in last.failed.values() if why != NO_ACKNOWLEDGEMENT})
    if others:
        return f"NATS stores nothing in {streams}: {', '.join(others)}"
    return f"NATS answers and stores nothing in {streams}: storage full or failing"


async def probe_storage(js: JetStreamContext) -> Probe:
    """QueueUnavailableError: NATS does not answer at all."""
    outcomes = await asyncio.gather(*(_write(js, subject) for subject in PROBES.values()))
    obey_cancellation()
    failed = {stream: why for stream, why in zip(PROBES, outcomes, strict=True) if why is not None}
    try:
        return Probe(failed, await _clean_queue(js) if failed.get(QUEUE) != NO_STREAM else None)
    except QueueUnavailableError:
        # A disk that stands still answers no purge either; the server itself does.
        if not failed or not await _is_answering(js):
            raise
        return Probe(failed)


class StorageWatch:
    def __init__(self) -> None:
        self._last = Probe()
        self.problem: str | None = None
        """As of the last probe; see `judge_storage`."""

    async def look(self, js: JetStreamContext) -> str | None:
        """Probes now, and judges. What a NATS that is away cannot say stays as it was."""
        try:
            probe = await probe_storage(js)
        except QueueUnavailableError:
            return self.problem
        before, self.problem = self.problem, judge_storage(probe, self._last)
        self._last = probe
        if before != self.problem:
            log.warning("queue.not_stored" if self.problem else "queue.stored", extra={"error": self.problem})
        return self.problem

    @property
    def pause_seconds(self) -> float:
        return DOUBT_SECONDS if self._last.failed else INTERVAL_SECONDS


async def _write(js: JetStreamContext, subject: str) -> str | None:
    """Why it was not stored; None when it was. Streams of records and bodies keep one message of a subject."""
    try:
        with translated():
            await js.publish(subject, timeout=ACKNOWLEDGED_SECONDS)
    except QueueFullError as error:
        why = without_path(str(error))
        return why if any(words in why for words in NO_ROOM) else None
    except APIError as error:
        return error.description or type(error).__name__
    except QueueUnavailableError as error:
        if isinstance(error.__cause__, NoStreamResponseError):
            return NO_STREAM
        if isinstance(error.__cause__, nats.errors.TimeoutError | TimeoutError):
            return NO_ACKNOWLEDGEMENT
        if isinstance(error.__cause__, APIError):
            return str(error)
        raise
    return None


async def _is_answering(js: JetStreamContext) -> bool:
    try:
        client = connected_core_of(js)
        await client.flush(ACKNOWLEDGED_SECONDS)
    except (QueueUnavailableError, nats.errors.Error, TimeoutError, OSError):
        return False
    # A connection that is lost meanwhile ends the wait, too.
    return client.is_connected


async def _clean_queue(js: JetStreamContext) -> str | None:
    """Removes the probe from the queue, which keeps every message. A queue that cannot write says why."""
    with translated():
        try:
            await js.purge_stream(QUEUE, subject=PROBES[QUEUE])
        except APIError as error:
            if not isinstance(error, ServerError):
                return None
            return without_path(error.description or "") or None
    return None


class NotDurableError(Exception):
    """A server acknowledges what it may still lose. The message names it and the fix."""


@dataclass(frozen=True)
class ServerSync:
    name: str
    has_jetstream: bool
    syncs_always: bool


async def check_durability(access: QueueAccess, replicas: int, name: str = "durability") -> None:
    """`access` is that of the `system` user. NotDurableError; QueueUnavailableError where no server answers."""
    async with open_client(access, name, inbox_prefix=inbox_prefix_of(QueueUser.SYSTEM)) as client:
        with translated():
            inbox = client.new_inbox()
            answers = await client.subscribe(inbox)
            await client.publish(f"{SERVERS}.VARZ", reply=inbox)
            servers = []
            seconds: float = ANSWER_SECONDS
            while answer := await _next(answers, seconds):
                servers.append(read_server(json.loads(answer)))
                seconds = QUIET_SECONDS
    if not any(server.has_jetstream for server in servers):
        raise QueueUnavailableError("NATS says nothing about its servers; are these the credentials of `system`?")
    judge_durability(servers, replicas)


def judge_durability(servers: list[ServerSync], replicas: int) -> None:
    if replicas >= ENOUGH_REPLICAS:
        return
    loose = sorted(server.name for server in servers if server.has_jetstream and not server.syncs_always)
    if loose:
        raise NotDurableError(
            f"{', '.join(loose)} of NATS may lose what it has acknowledged: with {replicas} replica(s), "
            "set `sync_interval: always` in the jetstream block of its configuration"
        )


def read_server(document: dict[str, Any]) -> ServerSync:
    """Of an answer to VARZ. Where it is not said that it syncs always, it does not."""
    config = document.get("data", {}).get("jetstream", {}).get("config") or {}
    name = document.get("server", {}).get("name", "a server")
    return ServerSync(str(name), bool(config), config.get("sync_always") is True)


async def _next(answers: Subscription, seconds: float) -> bytes | None:
    """Empty where nobody may be asked."""
    try:
        return bytes((await answers.next_msg(timeout=seconds)).data)
    except TimeoutError:
        return None
