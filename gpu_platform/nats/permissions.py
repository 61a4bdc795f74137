"""What each process may do in NATS, subject by subject. Whatever is not here, the server refuses.

| who         | reads                        | writes                                      | makes streams, consumers |
| ----------- | ---------------------------- | ------------------------------------------- | ------------------------ |
| `api`       | records, bodies, queue, logs | records; queue, bodies, which it may purge  | no                       |
| `functions` | the same                     | the same, and logs, which it may purge      | yes                      |
| a sidecar   | its function's, but no logs  | its function's records and results          | no                       |
| `system`    | the servers' own account     | nothing                                     | no                       |

Sidecars run beside foreign code, and have an account of their own (WORKERS), which holds nothing: of the platform's it
reaches what is in `SHARED`, each as a service. In the platform's own account a right to ask would be a right to write,
because the server sends an answer to whatever subject the asker names, and a stream takes it from there.

Answers come to an inbox whose prefix belongs to one user: nobody can listen to another's. So each has to connect with
the prefix of `inbox_prefix_of` or `sidecar_inbox_prefix`.
"""

from dataclasses import dataclass
from enum import StrEnum

from gpu_platform.nats.subjects import (
    BODIES,
    BODY_PREFIX,
    CHANGED_PREFIX,
    LOG_PREFIX,
    LOGS,
    QUEUE,
    QUEUE_PREFIX,
    RECORD_PREFIX,
    RECORDS,
    WAKE_PREFIX,
    body_subject,
    changed_subject,
    consumer_name,
    record_subject,
)

STREAMS = (RECORDS, QUEUE, BODIES, LOGS)
ANYTHING = ">"
JETSTREAM = "$JS.API"
DIRECT_GET = f"{JETSTREAM}.DIRECT.GET"
WORKERS_JETSTREAM = "serverless.jetstream"
"""As what the workers' account knows JetStream's API; by its real name that would be the account's own."""

SERVERS = "$SYS.REQ.SERVER.PING"
"""Asks all servers at once, over the account of the servers' own."""


class QueueUser(StrEnum):
    API = "api"
    FUNCTIONS = "functions"
    SYSTEM = "system"
    PLATFORM = "platform"
    """A person who looks after it all: everything in the platform's account."""


@dataclass(frozen=True)
class Permissions:
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


@dataclass(frozen=True)
class Shared:
    """What of the platform's account is within reach of the workers': how far, each user's permissions say."""

    subject: str
    local_subject: str
    many_answers: bool = False


def _share(*tokens: str, many_answers: bool = False) -> Shared:
    ending = ".".join(tokens)
    # In the local name, `$1` is what the asterisk stands for.
    return Shared(f"{JETSTREAM}.{ending}", f"{WORKERS_JETSTREAM}.{ending.replace('*', '$1')}", many_answers)


SHARED = (
    _share("CONSUMER.MSG.NEXT", QUEUE, "*", many_answers=True),
    _share("CONSUMER.INFO", QUEUE, "*"),
    _share("DIRECT.GET", RECORDS, ">"),
    _share("DIRECT.GET", BODIES, ">"),
    *(
        Shared(subject, subject)
        for subject in (f"$JS.ACK.{QUEUE}.>", f"{RECORD_PREFIX}.>", f"{BODY_PREFIX}.>", f"{CHANGED_PREFIX}.>")
    ),
)


def inbox_prefix_of(user: QueueUser) -> str:
    return f"_INBOX_{user}"


def sidecar_inbox_prefix(tenant: str, function: str) -> str:
    """No user of a function's can be called like one of ours: in those is no second underscore."""
    return f"_INBOX_{consumer_name(tenant, function)}"


def permissions_of(user: QueueUser) -> Permissions:
    inbox = f"{inbox_prefix_of(user)}.>"
    match user:
        case QueueUser.API:
            return Permissions((*_reads(), *_writes()), (inbox, f"{CHANGED_PREFIX}.>"))
        case QueueUser.FUNCTIONS:
            return Permissions(
                (*_reads(), *_writes(), *_makes(), *_keeps_logs()), (inbox, f"{CHANGED_PREFIX}.>", f"{WAKE_PREFIX}.>")
            )
        case QueueUser.SYSTEM:
            return Permissions((SERVERS, f"{SERVERS}.*"), (inbox,))
        case QueueUser.PLATFORM:
            return Permissions((ANYTHING,), (ANYTHING,))


def sidecar_permissions(tenant: str, function: str) -> Permissions:
    """Of one function's workers: its calls, their records and bodies, and nobody else's."""
    consumer = f"{QUEUE}.{consumer_name(tenant, function)}"
    records = record_subject(tenant, "*", function)
    return Permissions(
        publish=(
            f"{WORKERS_JETSTREAM}.CONSUMER.MSG.NEXT.{consumer}",
            f"{WORKERS_JETSTREAM}.CONSUMER.INFO.{consumer}",
            f"$JS.ACK.{consumer}.>",
            records,
            f"{WORKERS_JETSTREAM}.DIRECT.GET.{RECORDS}.{records}",
            body_subject(tenant, function, "*", "result", "*"),
            f"{WORKERS_JETSTREAM}.DIRECT.GET.{BODIES}.{body_subject(tenant, function, '*', '*', '*')}",
            changed_subject(tenant, function, "*"),
        ),
        subscribe=(f"{sidecar_inbox_prefix(tenant, function)}.>",),
    )


def _reads() -> tuple[str, ...]:
    of_each = [
        subject
        for stream in STREAMS
        for subject in (
            f"{JETSTREAM}.STREAM.INFO.{stream}",
            f"{JETSTREAM}.STREAM.MSG.GET.{stream}",
            f"{DIRECT_GET}.{stream}",
            f"{DIRECT_GET}.{stream}.>",
        )
    ]
    return (f"{JETSTREAM}.INFO", *of_each, f"{JETSTREAM}.CONSUMER.INFO.{QUEUE}.*")


def _writes() -> tuple[str, ...]:
    prefixes = (RECORD_PREFIX, QUEUE_PREFIX, BODY_PREFIX, CHANGED_PREFIX, WAKE_PREFIX)
    return (
        *(f"{prefix}.>" for prefix in prefixes),
        f"{JETSTREAM}.STREAM.PURGE.{QUEUE}",
        f"{JETSTREAM}.STREAM.PURGE.{BODIES}",
        f"{JETSTREAM}.STREAM.MSG.DELETE.{QUEUE}",
    )


def _keeps_logs() -> tuple[str, ...]:
    return (f"{LOG_PREFIX}.>", f"{JETSTREAM}.STREAM.PURGE.{LOGS}")


def _makes() -> tuple[str, ...]:
    """Streams are made and changed, but never taken away: that is a person's decision."""
    streams = [f"{JETSTREAM}.STREAM.{verb}.{stream}" for verb in ("CREATE", "UPDATE") for stream in STREAMS]
    consumers = [
        f"{JETSTREAM}.CONSUMER.{verb}.{QUEUE}" + ending
        for verb, ending in (
            ("CREATE", ""),
            ("CREATE", ".>"),
            ("DURABLE.CREATE", ".*"),
            ("DELETE", ".*"),
            ("NAMES", ""),
            ("LIST", ""),
        )
    ]
    return (*streams, f"{JETSTREAM}.STREAM.NAMES", *consumers)
