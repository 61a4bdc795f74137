"""The streams and consumers in JetStream. Only the control plane makes any of them."""

from contextlib import suppress
from datetime import timedelta

from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import NotFoundError

from gpu_platform.nats.errors import translated
from gpu_platform.nats.subjects import (
    BODIES,
    BODY_PREFIX,
    QUEUE,
    QUEUE_PREFIX,
    RECORD_PREFIX,
    RECORDS,
    STREAM_BYTES,
    consumer_name,
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
        with translated():
            try:
                await js.update_stream(config)
            except NotFoundError:
                await js.add_stream(config)


def build_streams(replicas: int) -> tuple[StreamConfig, ...]:
    records = StreamConfig(
        name=RECORDS,
        subjects=[f"{RECORD_PREFIX}.>"],
        storage=StorageType.FILE,
        discard=DiscardPolicy.NEW,
        max_msgs_per_subject=1,
        max_msg_size=LARGEST_RECORD + ROOM_FOR_HEADERS,
        max_bytes=STREAM_BYTES[RECORDS],
        num_replicas=replicas,
        # A record goes some time after its end, by itself.
        allow_msg_ttl=True,
        # Never with rollups: whoever may write one record could wipe away everybody's with its headers.
        allow_rollup_hdrs=False,
        allow_direct=True,
        deny_delete=True,
    )
    queue = StreamConfig(
        name=QUEUE,
        subjects=[f"{QUEUE_PREFIX}.>"],
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.FILE,
        # What does not fit is refused, so that its caller learns of it.
        discard=DiscardPolicy.NEW,
        max_bytes=STREAM_BYTES[QUEUE],
        num_replicas=replicas,
        allow_direct=True,
    )
    bodies = StreamConfig(
        name=BODIES,
        subjects=[f"{BODY_PREFIX}.>"],
        storage=StorageType.FILE,
        discard=DiscardPolicy.NEW,
        max_msgs_per_subject=1,
        max_bytes=STREAM_BYTES[BODIES],
        num_replicas=replicas,
        # Each chunk goes by itself, after its call's record.
        allow_msg_ttl=True,
        allow_direct=True,
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
