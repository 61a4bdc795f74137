"""Preparing a storage once more: asked for, recorded, and told to its controller by a nonce on the storage.

The nonce is the Operation's own name. So whoever looks at the storage knows whether this very wish has reached it, and
a wish that is sent again cannot start another preparation.

| step | what                                          | who repairs it when this process dies right after          |
| ---- | --------------------------------------------- | ---------------------------------------------------------- |
| 1    | record the Operation, if there is none        | the operations controller removes it: nothing was accepted |
| 2    | write the nonce on the storage as it was seen | the operations controller marks it                         |
| 3    | mark the Operation succeeded                  | nothing is left to do                                      |
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

from gpu_platform.adapters.fault_points import pass_point
from gpu_platform.domain.operations import ACCEPT_SECONDS, OperationKind, OperationPhase, OperationTarget
from gpu_platform.domain.storages import RecoveryRefusedError, build_recovery, check_recovery
from gpu_platform.domain.units import RequestError
from gpu_platform.kube import ConflictError, KubeError, NotFoundError
from gpu_platform.kube.paths import GPU_STORAGES
from gpu_platform.kube.requests import find
from gpu_platform.store.ledger import finish_operation, remove_operation
from platform_api.auth.keys import Caller
from platform_api.bounded_client import BoundedClient
from platform_api.http.errors import ApiError, conflict, not_found
from platform_api.objects.idempotent_create import (
    BEGINNINGS,
    OperationEnds,
    as_refusal,
    being_undone,
    build_act,
    check_replay,
    finished_in_background,
    open_for_tenant,
)
from platform_api.objects.limits import ObjectLimits

Json = dict[str, Any]

TRIES = 8
"""Against others who write the same storage, mostly its controller. Chosen by feel."""


class Recoveries:
    def __init__(self, client: BoundedClient, limits: ObjectLimits, now: Callable[[], datetime]) -> None:
        self._client = client
        self._limits = limits
        self._now = now
        self._ends = OperationEnds(client)

    async def accept(self, caller: Caller, name: str, operation_id: str) -> Json:
        """The storage, once its controller is told; as it is now, when that was done before."""
        storage = await get_storage(self._client, caller.namespace, name)
        wanted = build_recovery_operation(caller, operation_id, storage)
        for _ in range(BEGINNINGS):
            opened = await self._limits.find_replay(caller, wanted) or await open_for_tenant(self._client, wanted)
            if opened.is_new:
                pass_point("api.recovery-recorded")
                return await self._carry_out(opened.operation, caller.namespace, name)
            check_replay(opened.operation, wanted)
            if await self._ends.wait(opened.operation) is not None:
                return await get_storage(self._client, caller.namespace, name)
        raise being_undone(operation_id)

    async def _carry_out(self, operation: Json, namespace: str, name: str) -> Json:
        try:
            async with asyncio.timeout(ACCEPT_SECONDS):
                storage = await self._tell(operation, namespace, name)
                pass_point("api.recovery-told")
        except TimeoutError:
            raise finished_in_background() from None
        except RequestError:
            await remove_operation(self._client, operation)
            raise
        except (ApiError, KubeError) as error:
            refusal = as_refusal(error, "storage")
            if refusal is None:
                raise
            await remove_operation(self._client, operation)
            raise refusal from error
        uid = storage["metadata"]["uid"]
        try:
            await finish_operation(self._client, operation, OperationPhase.SUCCEEDED, self._now(), target_uid=uid)
        except (ConflictError, NotFoundError):
            # The operations controller saw the nonce, and marked it.
            return storage
        return storage

    async def _tell(self, operation: Json, namespace: str, name: str) -> Json:
        for _ in range(TRIES):
            storage = await get_storage(self._client, namespace, name)
            if storage["metadata"]["uid"] != operation["spec"]["target"]["uid"]:
                raise storage_not_found(name)
            try:
                check_recovery(storage)
            except RecoveryRefusedError as error:
                raise conflict(f"the storage {name!r} cannot be prepared anew: {error}") from error
            try:
                patch = build_recovery(storage, operation["metadata"]["name"])
                return await self._client.patch(GPU_STORAGES.item(name, namespace), patch)
            except ConflictError:
                continue
            except NotFoundError:
                raise storage_not_found(name) from None
        raise conflict(f"the storage {name!r} is being changed again and again; try again")


def build_recovery_operation(caller: Caller, operation_id: str, storage: Json) -> Json:
    metadata = storage["metadata"]
    target = OperationTarget(kind="GPUStorage", namespace=caller.namespace, name=metadata["name"], uid=metadata["uid"])
    return build_act(caller, operation_id, OperationKind.RECOVER_STORAGE, target)


async def get_storage(client: BoundedClient, namespace: str, name: str) -> Json:
    storage = await find(client, GPU_STORAGES, name, namespace)
    if storage is None:
        raise storage_not_found(name)
    return storage


def storage_not_found(name: str) -> ApiError:
    return not_found("gpustorage_not_found", f"there is no storage {name!r}")
