"""What is called how in JetStream. Whoever may do what there is a matter of these names, so all agree on them here.

| what          | named                                                 | holds                                     |
| ------------- | ----------------------------------------------------- | ----------------------------------------- |
| records       | `$KV.invocations.<tenant>.<id>.<function>`            | every call, until some time after its end |
| queue         | `serverless.invoke.<tenant>.<function>.<id>`          | the calls that wait or run, no bodies     |
| bodies        | `serverless.body.<tenant>.<function>.<id>.<part>.<n>` | what is too large for a record, in chunks |
| logs          | `serverless.logs.<tenant>.<function>.<worker>`        | the last lines of a worker, also after it |
| consumer      | durable, for pulling: `<tenant>_<function>`           | who may take a call, and how often        |
| hints         | `serverless.changed.<tenant>.<function>.<id>`         | nothing: somebody may want to look        |
| wake-up calls | `serverless.wake.<tenant>.<function>`                 | nothing: a call was queued                |

Tenants and functions are DNS labels, ids single tokens: no name of one can mean another.
"""

QUEUE = "SERVERLESS_INVOKE"
RECORDS = "KV_invocations"
BODIES = "SERVERLESS_BODIES"
LOGS = "SERVERLESS_LOGS"

STREAM_BYTES = {QUEUE: 1 << 30, RECORDS: 4 << 30, BODIES: 4 << 30}
"""The most that each may hold. JetStream reserves it when the stream is made."""

CHUNK_BYTES = 512 << 10
"""The most in one message of BODIES. JetStream counts messages by subject, but not their bytes: each of a tenant's
counts as this many."""

RESERVED_BYTES = sum(STREAM_BYTES.values())

RECORD_PREFIX = "$KV.invocations"
QUEUE_PREFIX = "serverless.invoke"
BODY_PREFIX = "serverless.body"
LOG_PREFIX = "serverless.logs"
CHANGED_PREFIX = "serverless.changed"
WAKE_PREFIX = "serverless.wake"


def record_subject(tenant: str, invocation_id: str, function: str) -> str:
    return f"{RECORD_PREFIX}.{tenant}.{invocation_id}.{function}"


def queue_subject(tenant: str, function: str, invocation_id: str) -> str:
    return f"{QUEUE_PREFIX}.{tenant}.{function}.{invocation_id}"


def body_subject(tenant: str, function: str, invocation_id: str, part: str, number: int | str) -> str:
    return f"{BODY_PREFIX}.{tenant}.{function}.{invocation_id}.{part}.{number}"


def log_subject(tenant: str, function: str, worker: str) -> str:
    return f"{LOG_PREFIX}.{tenant}.{function}.{worker}"


def changed_subject(tenant: str, function: str, invocation_id: str) -> str:
    return f"{CHANGED_PREFIX}.{tenant}.{function}.{invocation_id}"


def wake_subject(tenant: str, function: str) -> str:
    return f"{WAKE_PREFIX}.{tenant}.{function}"


def consumer_name(tenant: str, function: str) -> str:
    """Tenants and functions are DNS labels: an underscore is in neither."""
    return f"{tenant}_{function}"


def parse_consumer_name(name: str) -> tuple[str, str] | None:
    """Tenant and function; None for a name that no function's consumer has."""
    tenant, underscore, function = name.partition("_")
    return (tenant, function) if tenant and underscore and function and "_" not in function else None
