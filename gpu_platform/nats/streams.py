"""The streams and consumers in JetStream, and what waits for each consumer. Only the control plane makes any."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    ConsumerInfo,
    DiscardPolicy,
    RawStreamMsg,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import NotFoundError

from gpu_platform.nats.errors import STREAM_MISSING, QueueUnavailableError, translated
from gpu_platform.nats.subjects import (
    BODIES,
    BODY_PREFIX,
    QUEUE,
    QUEUE_PREFIX,
    RECORD_PREFIX,
    RECORDS,
    STREAM_BYTES,
    consumer_name,
    parse_consumer_name,
    queue_subject,
)

WITHOUT_LIMIT = -1
"""Deliveries of one message. Whoever takes a call after its last worker has died writes that it is a dead letter."""

LARGEST_RECORD = 1_000_000
"""Bytes, with room for headers below the server's limit for a message."""

ROOM_FOR_HEADERS = 4_096
"""They count as a part of the message."""


async def ensure_streams(js: JetStreamContext, replicas: int = 1) -> None:
    """Twice is fine; a setting that has changed is changed."""
    for config in build_streams(replicas):
        await ensure_stream(js, config)


async def ensure_stream(js: JetStreamContext, config: StreamConfig) -> None:
    with translated():
        try:
            await js.update_stream(config)
        except NotFoundError:
            await js.add_stream(config)


async def find_message(js: JetStreamContext, stream: str, subject: str, *, direct: bool = False) -> RawStreamMsg | None:
    """Returns the last message on this subject; None without one. QueueUnavailableError: there is no such stream. With
    `direct` any server answers, which may be a moment behind."""
    with translated():
        try:
            return await js.get_msg(stream, subject=subject, direct=direct)
        except NotFoundError as error:
            if error.err_code == STREAM_MISSING:
                raise
            return None


def build_streams(replicas: int) -> tuple[StreamConfig, ...]:
    # What does not fit is refused, so that its caller learns of it.
    build = partial(
        StreamConfig, storage=StorageType.FILE, discard=DiscardPolicy.NEW, num_replicas=replicas, allow_direct=True
    )
    records = build(
        name=RECORDS,
        subjects=[f"{RECORD_PREFIX}.>"],
        max_msgs_per_subject=1,
        max_msg_size=LARGEST_RECORD + ROOM_FOR_HEADERS,
        max_bytes=STREAM_BYTES[RECORDS],
        # A record goes some time after its end, by itself.
        allow_msg_ttl=True,
        # Never with rollups: whoever may write one record could wipe away everybody's with its headers.
        allow_rollup_hdrs=False,
        deny_delete=True,
    )
    queue = build(
        name=QUEUE,
        subjects=[f"{QUEUE_PREFIX}.>"],
        retention=RetentionPolicy.WORK_QUEUE,
        max_bytes=STREAM_BYTES[QUEUE],
    )
    bodies = build(
        name=BODIES,
        subjects=[f"{BODY_PREFIX}.>"],
        max_msgs_per_subject=1,
        max_bytes=STREAM_BYTES[BODIES],
        # Each chunk goes by itself, after its call's record.
        allow_msg_ttl=True,
        deny_delete=True,
    )
    return records, queue, bodies


async def ensure_consumer(js: JetStreamContext, tenant: str, function: str, ack_wait: timedelta) -> None:
    """Without `backoff`, which would replace the time to acknowledge."""
    config = ConsumerConfig(
        durable_name=consumer_name(tenant, function),
        filter_subject=queue_subject(tenant, function, "*"),
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ack_wait.total_seconds(),
        max_deliver=WITHOUT_LIMIT,
        max_ack_pending=-1,
    )
    with translated():
        await js.add_consumer(QUEUE, config)


async def remove_consumer(js: JetStreamContext, tenant: str, function: str) -> None:
    """With what waits for it: nobody else could take it."""
    with translated():
        with suppress(NotFoundError):
            await js.delete_consumer(QUEUE, consumer_name(tenant, function))
        await js.purge_stream(QUEUE, subject=queue_subject(tenant, function, "*"))


@dataclass(frozen=True)
class Backlog:
    """How many of a function's calls wait, and how many are with a worker."""

    waiting: int
    running: int
    """Given to a worker and not acknowledged."""

    given: int = 0
    """How often a call was given to a worker, ever."""

    @property
    def calls(self) -> int:
        return self.waiting + self.running


async def list_consumers(js: JetStreamContext) -> frozenset[tuple[str, str]]:
    """Tenant and function of each. What somebody made for another purpose is left alone."""
    return frozenset(await read_backlogs(js))


async def read_backlogs(js: JetStreamContext) -> dict[tuple[str, str], Backlog]:
    """By tenant and function."""
    found: dict[tuple[str, str], Backlog] = {}
    offset = 0
    while True:
        with translated():
            try:
                page = await js.consumers_info(QUEUE, offset)
            except NotFoundError as error:
                # A queue that is not there (yet, or any more) is one that does not answer.
                raise QueueUnavailableError(f"NATS has no stream {QUEUE}") from error
        if not page:
            return found
        found |= {key: _backlog_of(info) for info in page if (key := parse_consumer_name(info.name)) is not None}
        offset += len(page)


async def read_backlog(js: JetStreamContext, tenant: str, function: str) -> Backlog | None:
    """None: it has no consumer."""
    with translated():
        try:
            return _backlog_of(await js.consumer_info(QUEUE, consumer_name(tenant, function)))
        except NotFoundError:
            return None


def _backlog_of(info: ConsumerInfo) -> Backlog:
    given = info.delivered.consumer_seq if info.delivered else 0
    return Backlog(info.num_pending or 0, info.num_ack_pending or 0, given)
