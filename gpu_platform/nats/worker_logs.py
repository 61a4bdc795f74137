"""The entries of `domain/worker_logs` in JetStream: one message per worker, replaced as its log grows."""

from dataclasses import dataclass

from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, StorageType, StreamConfig

from gpu_platform.domain.worker_logs import BYTES, ENTRIES, KEPT
from gpu_platform.nats.errors import translated
from gpu_platform.nats.listing import read_all
from gpu_platform.nats.records import EXPECTED_SEQUENCE
from gpu_platform.nats.streams import ensure_stream, find_message
from gpu_platform.nats.subjects import LOG_PREFIX, LOGS, log_subject

WRITE_SECONDS = 5.0
BATCH = 64


POD = "Gpu-Platform-Pod"
"""The header with the uid of the pod that wrote the last lines."""


@dataclass(frozen=True)
class WorkerLog:
    """The entry of a worker; without lines and sequence, there is none."""

    worker: str
    lines: tuple[str, ...] = ()
    sequence: int = 0
    pod_uid: str | None = None
    """Only where one entry is asked for."""


async def ensure_log_stream(js: JetStreamContext, replicas: int) -> None:
    """Apart from the other streams: functions work without it."""
    config = StreamConfig(
        name=LOGS,
        subjects=[f"{LOG_PREFIX}.>"],
        storage=StorageType.FILE,
        # The oldest go. No bound in bytes: the server would reserve them, and these bounds say as much.
        discard=DiscardPolicy.OLD,
        max_msgs=ENTRIES,
        max_msgs_per_subject=1,
        max_msg_size=2 * BYTES,
        max_age=KEPT.total_seconds(),
        num_replicas=replicas,
        allow_direct=True,
    )
    await ensure_stream(js, config)


async def write_log(js: JetStreamContext, tenant: str, function: str, entry: WorkerLog) -> int:
    """The new sequence. OutdatedError: its sequence is not that of the last write."""
    headers = {EXPECTED_SEQUENCE: str(entry.sequence), **({POD: entry.pod_uid} if entry.pod_uid else {})}
    content = "\n".join(entry.lines).encode()
    with translated():
        subject = log_subject(tenant, function, entry.worker)
        return (await js.publish(subject, content, timeout=WRITE_SECONDS, headers=headers)).seq


async def find_log(js: JetStreamContext, tenant: str, function: str, worker: str) -> WorkerLog:
    found = await find_message(js, LOGS, log_subject(tenant, function, worker))
    if found is None:
        return WorkerLog(worker)
    return WorkerLog(worker, _parse(found.data or b""), found.seq or 0, (found.headers or {}).get(POD))


async def list_logs(
    js: JetStreamContext, tenant: str, function: str, worker: str = "*", *, sequence: int = 1
) -> tuple[WorkerLog, ...]:
    """Those that were written from this sequence on, in that order."""
    messages = read_all(js, LOGS, log_subject(tenant, function, worker), sequence, BATCH)
    found = [WorkerLog(each.subject.rpartition(".")[2], _parse(each.data), each.sequence) async for each in messages]
    return tuple(found)


async def remove_logs(js: JetStreamContext, tenant: str, function: str, worker: str = "*") -> None:
    with translated():
        await js.purge_stream(LOGS, subject=log_subject(tenant, function, worker))


def _parse(content: bytes) -> tuple[str, ...]:
    return tuple(content.decode(errors="replace").split("\n")) if content else ()
