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

from gpu_platform.adapters.queue.errors import translated
from gpu_platform.domain.queue_subjects import (
    QUEUE,
    QUEUE_PREFIX,
    RECORD_PREFIX,
    RECORDS,
    consumer_name,
    queue_subject,
)

SPARE_DELIVERIES = 2
"""Beyond the attempts: whoever takes a call after the last one has died writes that it is a dead letter."""

LARGEST_RECORD = 1_000_000
"""Bytes, with room for headers below the server's limit for a message."""

QUEUE_BYTES = 1 << 30
RECORD_BYTES = 8 << 30


async def ensure_streams(js: JetStreamContext, replicas: int = 1) -> None:
    """Twice is fine; a setting that has changed is changed."""
    for config in build_streams(replicas):
        with translated():
            try:
                await js.update_stream(config)
            except NotFoundError:
                await js.add_stream(config)


def build_streams(replicas: int) -> tuple[StreamConfig, StreamConfig]:
    records = StreamConfig(
        name=RECORDS,
        subjects=[f"{RECORD_PREFIX}.>"],
        storage=StorageType.FILE,
        discard=DiscardPolicy.NEW,
        max_msgs_per_subject=1,
        max_msg_size=LARGEST_RECORD,
        max_bytes=RECORD_BYTES,
        num_replicas=replicas,
        # A record goes some time after its end, by itself.
        allow_msg_ttl=True,
        allow_rollup_hdrs=True,
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
        max_bytes=QUEUE_BYTES,
        num_replicas=replicas,
    )
    return records, queue


async def ensure_consumer(
    js: JetStreamContext, tenant: str, function: str, ack_wait: timedelta, max_attempts: int
) -> None:
    """Without `backoff`, which would replace the time to acknowledge."""
    config = ConsumerConfig(
        durable_name=consumer_name(tenant, function),
        filter_subject=queue_subject(tenant, function, "*"),
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ack_wait.total_seconds(),
        max_deliver=max_attempts + SPARE_DELIVERIES,
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
