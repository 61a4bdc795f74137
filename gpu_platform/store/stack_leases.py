"""The guarded writes of the index of stacks: take a stack's Lease, keep it while Pulumi runs, write what came of it.
With the records of one stack, read from the API server.

Every write is of the Lease as it was seen, so of two workers one meets a conflict. A holder that was superseded learns
of it at its next renewal or at its last write, and neither changes anything.
"""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from gpu_platform.clock import format_micro_time
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import SYSTEM_NAMESPACE
from gpu_platform.domain.operations import OperationKind, OperationPhase, delete_operation_name, operation_name
from gpu_platform.domain.stack_plan import Records
from gpu_platform.domain.stacks import (
    OBJECT_KINDS,
    StackAddress,
    StackRecord,
    parse_record,
    record_annotations,
    record_labels,
)
from gpu_platform.kube.errors import NotFoundError
from gpu_platform.kube.paths import LEASES, OPERATIONS, PATH_OF_KIND
from gpu_platform.kube.requests import ObjectClient, as_seen, find

CREATIONS = (
    OperationKind.CREATE_UNIT,
    OperationKind.CREATE_STORAGE,
    OperationKind.CREATE_FUNCTION,
    OperationKind.CREATE_STOCK_POOL,
    OperationKind.SEED_STOCK_UNITS,
)

PATHS = {stack: PATH_OF_KIND[kind] for kind, stack in OBJECT_KINDS.items()}


@dataclass(frozen=True)
class Holder:
    """Who works on a stack: one process, told from an earlier one on the same machine by its token."""

    host: str
    pid: int
    token: str

    @property
    def identity(self) -> str:
        return f"{self.host}_{self.pid}_{self.token}"


def parse_holder(identity: str) -> Holder | None:
    host, _, rest = identity.partition("_")
    pid, _, token = rest.partition("_")
    return Holder(host, int(pid), token) if pid.isdigit() and token else None


def holder_of(lease: Json) -> str:
    """Empty when nobody works on the stack."""
    return str(lease.get("spec", {}).get("holderIdentity") or "")


def epoch_of(lease: Json) -> int:
    return int(lease.get("spec", {}).get("leaseTransitions") or 0)


def is_dead(holder: str, own: Holder) -> bool:
    """Whether this holder is provably gone: a process of this host that is no more."""
    other = parse_holder(holder)
    if other is None or other.host != socket.gethostname():
        return False
    if other.pid == own.pid:
        return other.token != own.token
    try:
        os.kill(other.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


async def find_record(client: ObjectClient, address: StackAddress) -> StackRecord | None:
    """The stack's entry, asked of the API server."""
    return parse_record(await find(client, LEASES, address.lease, SYSTEM_NAMESPACE))


async def take_lease(
    client: ObjectClient, lease: Json | None, record: StackRecord, holder: Holder, seconds: int, now: datetime
) -> Json:
    """Hold the stack's Lease, a new one or this one as it was seen. AlreadyExistsError or ConflictError: somebody was
    faster."""
    body: Json = lease or {
        "apiVersion": LEASES.api_version,
        "kind": "Lease",
        "metadata": {"name": record.address.lease, "namespace": SYSTEM_NAMESPACE},
    }
    metadata = {
        **body["metadata"],
        "labels": record_labels(record.address),
        "annotations": record_annotations(record),
    }
    spec = {
        "holderIdentity": holder.identity,
        "leaseDurationSeconds": seconds,
        "acquireTime": format_micro_time(now),
        "renewTime": format_micro_time(now),
        "leaseTransitions": epoch_of(body) + 1,
    }
    held = {**body, "metadata": metadata, "spec": spec}
    if lease is None:
        return await client.create(LEASES.collection(SYSTEM_NAMESPACE), held)
    return await client.replace(LEASES.of(lease), held)


async def renew_lease(client: ObjectClient, lease: Json, now: datetime) -> Json:
    spec = {**lease["spec"], "renewTime": format_micro_time(now)}
    return await client.replace(LEASES.of(lease), {**lease, "spec": spec})


async def release_lease(client: ObjectClient, lease: Json, record: StackRecord, now: datetime) -> Json:
    """Write what came of it, and let the next one in."""
    metadata = {**lease["metadata"], "annotations": record_annotations(record)}
    spec = {**lease["spec"], "holderIdentity": None, "renewTime": format_micro_time(now)}
    return await client.replace(LEASES.of(lease), {**lease, "metadata": metadata, "spec": spec})


async def remove_lease(client: ObjectClient, lease: Json) -> None:
    """The stack is gone, and its entry goes last."""
    with suppress(NotFoundError):
        await client.delete(LEASES.of(lease), {"preconditions": as_seen(lease)})


async def look(client: ObjectClient, address: StackAddress, stack: StackRecord) -> Records:
    """A cache that is behind must not cost anybody a unit."""
    item = await find(client, PATHS[address.kind], address.name, address.namespace)
    deletion = await find(client, OPERATIONS, deletion_name(address, item, stack), address.namespace)
    creation = await find(client, OPERATIONS, creation_name(address, stack), address.namespace)
    return build_records(item, stack, deletion, creation)


def build_records(
    item: Json | None, stack: StackRecord | None, deletion: Json | None, creation: Json | None
) -> Records:
    return Records(
        item=item,
        stack=stack,
        is_delete_asked=deletion is not None,
        is_accepted=creation is not None and _is_accepted(creation),
    )


def deletion_name(address: StackAddress, item: Json | None, stack: StackRecord | None) -> str:
    """The operation that asks for the end of the very object that the stack, or else the custom resource, is about."""
    uid = stack.uid if stack is not None else item["metadata"]["uid"] if item is not None else ""
    return delete_operation_name(address.ledger_tenant, uid)


def creation_name(address: StackAddress, stack: StackRecord | None) -> str:
    operation_id = stack.recorded.operation_id if stack is not None and stack.recorded is not None else ""
    return operation_name(address.ledger_tenant, operation_id)


def _is_accepted(operation: Json) -> bool:
    """Previews share the names of operations, and prove nothing."""
    is_creation = operation["spec"]["kind"] in CREATIONS
    return is_creation and operation.get("status", {}).get("phase") == OperationPhase.SUCCEEDED
