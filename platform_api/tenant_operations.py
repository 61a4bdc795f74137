"""Recording what a tenant asks for, and answering whoever asks again: what units, storages and functions do alike."""

import asyncio
import time
from typing import Any

from gpu_platform.adapters.creations import NameTakenError
from gpu_platform.adapters.kube import KubeError, NotFoundError
from gpu_platform.adapters.kube.paths import GPU_SPECS, OPERATIONS
from gpu_platform.adapters.ledger import LedgerClient, Opened, is_final, open_operation, spec_of
from gpu_platform.domain.operations import OperationSpec
from platform_api.bounded_client import BoundedClient
from platform_api.cluster import Cluster
from platform_api.http.errors import (
    NAMESPACE_LIMITS,
    ApiError,
    conflict,
    forbidden,
    from_kube,
    in_progress,
    invalid_field,
)
from platform_api.shared_tasks import SharedTasks

Json = dict[str, Any]

BEGINNINGS = 3
"""Tries to record an operation that is being removed at the same time."""

REPLAY_SECONDS = 5.0
"""How long a replay waits for the end of the first try."""

FIRST_PAUSE_SECONDS = 0.03
LONGEST_PAUSE_SECONDS = 0.5


async def open_for_tenant(client: LedgerClient, operation: Json) -> Opened:
    """Record it, unless one of its name is recorded; a 403 that says so when the tenant has no namespace."""
    try:
        return await open_operation(client, operation)
    except KubeError as error:
        # 403 where the platform's own rights end at the namespaces that there are.
        if error.status not in (403, 404) or any(word in error.message for word in NAMESPACE_LIMITS):
            raise
        namespace = operation["metadata"]["namespace"]
        raise forbidden(f"the tenant has no namespace {namespace} yet; ask an operator to make it") from error


def check_replay(recorded: Json, wanted: Json) -> OperationSpec:
    """What was recorded under the operationID; a 409 when that is another request."""
    was, ours = spec_of(recorded), spec_of(wanted)
    if (was.kind, was.request_hash) != (ours.kind, ours.request_hash):
        raise conflict(f"operationID {ours.operation_id!r} was used for another request; choose a new one")
    return was


async def check_catalogue(cluster: Cluster, spec_name: str) -> None:
    """A 400 that names the specs which there are."""
    if cluster.specs.get(None, spec_name) is not None:
        return
    try:
        await cluster.client.get(GPU_SPECS.item(spec_name))
    except NotFoundError:
        known = ", ".join(sorted(spec["metadata"]["name"] for spec in cluster.specs.objects())) or "none"
        raise invalid_field("specName", f"there is no spec {spec_name!r}; there are: {known}") from None


def as_refusal(error: ApiError | KubeError | NameTakenError, what: str) -> ApiError | None:
    """What the caller is told when the answer is no for good; None when nobody knows what happened. `what` it is that
    was to be made, in words."""
    match error:
        case NameTakenError():
            return conflict(f"there is a {what} {error} already, made by another operation; choose another name")
        case ApiError(status=400 | 403 | 404 | 409):
            return error
        case KubeError(is_refusal=True):
            return from_kube(error)
    return None


class OperationEnds:
    """Operations whose end somebody waits for: however many wait, one asks."""

    def __init__(self, client: BoundedClient) -> None:
        self._client = client
        self._awaited = SharedTasks[str, Json | None]()

    async def wait(self, operation: Json) -> Json | None:
        """The operation once it has ended; None once it was removed; a 503 when neither happens in time."""
        if is_final(operation):
            return operation
        return await self._awaited.join(operation["metadata"]["uid"], lambda: self._poll(operation))

    async def _poll(self, operation: Json) -> Json | None:
        metadata = operation["metadata"]
        deadline = time.monotonic() + REPLAY_SECONDS
        pause = FIRST_PAUSE_SECONDS
        while not is_final(operation):
            if time.monotonic() > deadline:
                raise in_progress("the first try of this operation is still under way; ask again")
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            try:
                operation = await self._client.get(OPERATIONS.item(metadata["name"], metadata["namespace"]))
            except NotFoundError:
                return None
            if operation["metadata"]["uid"] != metadata["uid"]:
                # That try came to nothing; this is another one.
                return None
        return operation
