"""The service of storages: accepts, reads, changes, deletes and recovers them. Every write is of the storage as it was
seen.

A recovery prepares a storage once more: asked for, recorded, and told to its controller by a nonce on the storage. The
nonce is the Operation's own name. So the controller knows whether this very request has reached the storage, and one
that is sent again cannot start another preparation.

| step | what                                          | who repairs it when this process dies right after          |
| ---- | --------------------------------------------- | ---------------------------------------------------------- |
| 1    | record the Operation, if there is none        | the operations controller removes it: nothing was accepted |
| 2    | write the nonce on the storage as it was seen | the operations controller marks it                         |
| 3    | mark the Operation succeeded                  | nothing is left to do                                      |
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial

from gpu_platform.api_models.storages import CreateStorage, StorageView
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import ACCEPT_SECONDS, OperationKind, OperationPhase, OperationTarget
from gpu_platform.domain.quantities import parse_amount
from gpu_platform.domain.stacks import as_accepted
from gpu_platform.domain.storages import (
    GPUStorageSpec,
    RecoveryRefusedError,
    StorageChange,
    StoragePhase,
    StorageRequest,
    build_recovery,
    build_storage,
    check_recovery,
    merge_storage_change,
    normalise_storage,
)
from gpu_platform.domain.units import RequestError, with_accepted_spec
from gpu_platform.kube import ConflictError, KubeError, NotFoundError
from gpu_platform.kube.paths import GPU_STORAGES
from gpu_platform.kube.requests import find
from gpu_platform.process import pass_point
from gpu_platform.store.ledger import (
    build_deletion,
    finish_operation,
    open_operation,
    remove_operation,
    settle_creation,
    spec_of,
)
from gpu_platform.store.storages import StorageHeldError, delete_unused_storage
from platform_api.auth.keys import Caller
from platform_api.cluster import Cluster
from platform_api.gpu_units.acceptance import in_use_error
from platform_api.http.errors import ApiError, conflict, not_found, not_ready
from platform_api.kube_health import BoundedClient
from platform_api.objects.idempotent_create import (
    BEGINNINGS,
    Declarations,
    Declared,
    OperationEnds,
    as_refusal,
    being_undone,
    build_act,
    build_creation,
    check_replay,
    finished_in_background,
    open_for_tenant,
)
from platform_api.objects.limits import ObjectLimits
from platform_api.objects.optimistic_update import change_as_seen, changed_by_others, check_match, refuse_owned
from platform_api.objects.reads import build_phase_selectors, read_page
from platform_api.proxy.plan import NotReady, Target
from platform_api.stacks.service import RecordingWaits
from platform_api.storages.plan import plan_accessor, storage_not_found
from platform_api.storages.views import view_storage

TRIES = 8
"""Against others who write the same storage, mostly its controller. Chosen by feel."""


class StorageTargets:
    def __init__(self, cluster: Cluster, *, development_addresses: bool) -> None:
        self._cluster = cluster
        self._development_addresses = development_addresses

    async def find(self, caller: Caller, name: str) -> Target:
        storage = await self._cluster.find_storage(caller.namespace, name)
        if storage is None:
            raise storage_not_found(name)
        self._cluster.require_known_pods()
        pods = self._cluster.accessor_pods_of(storage)
        match plan_accessor(storage, pods, development_addresses=self._development_addresses):
            case NotReady(message):
                raise not_ready(message)
            case target:
                return target

    def find_proxy_path(self, storage: Json) -> str | None:
        """Where this API shows the storage's files; None while nobody would answer."""
        pods = self._cluster.accessor_pods_of(storage)
        found = plan_accessor(storage, pods, development_addresses=self._development_addresses)
        return f"/api/v1/gpu-storages/{storage['metadata']['name']}/proxy/" if isinstance(found, Target) else None


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


class StorageAcceptance:
    def __init__(self, client: BoundedClient, limits: ObjectLimits, now: Callable[[], datetime]) -> None:
        self._client = client
        self._declarations = Declarations(client, limits, GPU_STORAGES, "storage", now)

    async def accept(self, caller: Caller, body: CreateStorage) -> Declared:
        request = normalise_storage(body.to_request())
        wanted = build_creation(caller, body.operation_id, OperationKind.CREATE_STORAGE, "GPUStorage", request)
        storage = build_storage(request, caller.namespace, body.operation_id, spec_of(wanted).request_hash)
        return await self._declarations.accept(caller, wanted, storage, partial(self._check_source, caller, request))

    async def _check_source(self, caller: Caller, request: StorageRequest) -> None:
        """One that goes after this look is missed by the storage's controller, which says so."""
        source = request.prepare.from_storage_name if request.prepare else None
        if source is None:
            return
        found = await find(self._client, GPU_STORAGES, source, caller.namespace)
        if found is None or "deletionTimestamp" in found["metadata"]:
            raise not_found("gpustorage_not_found", f"prepare.fromStorageName: there is no storage {source!r}")


class StorageService:
    def __init__(
        self, cluster: Cluster, limits: ObjectLimits, now: Callable[[], datetime], *, development_addresses: bool
    ) -> None:
        client = self.client = cluster.client
        self._limits = limits
        self.targets = StorageTargets(cluster, development_addresses=development_addresses)
        self.acceptance = StorageAcceptance(client, limits, now)
        self.recoveries = Recoveries(client, limits, now)
        self.recordings = RecordingWaits(client)
        self._now = now

    def show(self, storage: Json, root: str) -> StorageView:
        """`root` is where the caller reaches this API."""
        path = self.targets.find_proxy_path(storage)
        return view_storage(storage, f"{root}{path}" if path else None)

    async def get(self, caller: Caller, name: str) -> Json:
        return await get_storage(self.client, caller.namespace, name)

    async def list_page(
        self, caller: Caller, limit: int, token: str | None, phase: StoragePhase | None
    ) -> tuple[list[Json], str | None]:
        selectors = build_phase_selectors(phase, StoragePhase.PENDING)
        return await read_page(self.client, GPU_STORAGES, caller.namespace, limit, token, selectors)

    async def update(self, caller: Caller, name: str, change: StorageChange, if_match: str | None) -> Json:
        async def write(storage: Json) -> Json:
            accepted = GPUStorageSpec.model_validate(as_accepted(storage)["spec"])
            after = merge_storage_change(_as_large_as(accepted, storage), change)
            if after == accepted:
                return as_accepted(storage)
            path = GPU_STORAGES.item(name, caller.namespace)
            return await self.client.replace(path, with_accepted_spec(storage, after))

        return await change_as_seen("storage", name, if_match, lambda: self._get_own(caller, name), write)

    async def delete(self, caller: Caller, name: str, if_match: str | None) -> None:
        seen = await self._get_own(caller, name)
        check_match(seen, "storage", if_match)

        async def record(storage: Json) -> Json:
            await settle_creation(self.client, storage, caller.tenant, self._now())
            deletion = build_deletion(storage, caller.tenant)
            replay = await self._limits.find_replay(caller, deletion)
            return (replay or await open_operation(self.client, deletion)).operation

        try:
            await delete_unused_storage(self.client, seen, record)
        except StorageHeldError as error:
            raise in_use_error(error) from error
        except ConflictError:
            raise changed_by_others("storage", name) from None

    async def _get_own(self, caller: Caller, name: str) -> Json:
        storage = await self.get(caller, name)
        refuse_owned(storage, "storage")
        return storage


def _as_large_as(accepted: GPUStorageSpec, storage: Json) -> GPUStorageSpec:
    """A change is one of what was accepted: it must not make somebody's edit a part of it. But what somebody let grow
    cannot shrink again, so the size that is there is where a change begins."""
    there = storage["spec"]["size"]
    return (
        accepted.model_copy(update={"size": there}) if parse_amount(there) > parse_amount(accepted.size) else accepted
    )
