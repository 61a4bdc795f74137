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

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial

from gpu_platform.api_models.storages import CreateStorage, StorageView
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import OperationKind, OperationPhase
from gpu_platform.domain.quantities import parse_amount
from gpu_platform.domain.stacks import as_accepted
from gpu_platform.domain.storages import (
    GPUStorageSpec,
    RecoveryRefusedError,
    StorageChange,
    StorageRequest,
    build_recovery,
    build_storage,
    check_recovery,
    merge_storage_change,
    normalise_storage,
)
from gpu_platform.domain.units import with_accepted_spec
from gpu_platform.kube import ConflictError, NotFoundError
from gpu_platform.kube.paths import GPU_STORAGES
from gpu_platform.kube.requests import find
from gpu_platform.process import pass_point
from gpu_platform.store.ledger import finish_operation, spec_of
from gpu_platform.store.storages import StorageHeldError, delete_unused_storage
from platform_api.auth.keys import Caller
from platform_api.cluster import Cluster
from platform_api.gpu_units.acceptance import in_use_error
from platform_api.http.errors import ApiError, conflict, not_found, object_not_found
from platform_api.objects.idempotent_create import (
    BEGINNINGS,
    Accepted,
    Declarations,
    OperationEnds,
    being_undone,
    build_act,
    build_creation,
    carry_out,
    check_replay,
    open_for_tenant,
    target_of,
)
from platform_api.objects.optimistic_update import changed_by_others, check_match
from platform_api.objects.service import ObjectService
from platform_api.objects.tenant_limits import ObjectLimits
from platform_api.proxy.pod_address import Target
from platform_api.storages.proxy_target import plan_accessor
from platform_api.storages.views import view_storage

TRIES = 8
"""Against others who write the same storage, mostly its controller. Chosen by feel."""


class StorageTargets:
    def __init__(self, cluster: Cluster, *, development_addresses: bool) -> None:
        self._cluster = cluster
        self._development_addresses = development_addresses

    async def find(self, caller: Caller, name: str) -> Target:
        storage = await self._cluster.find(GPU_STORAGES, caller.namespace, name)
        if storage is None:
            raise object_not_found("storage", name)
        self._cluster.require_known_pods()
        found = self._plan(storage)
        if isinstance(found, ApiError):
            raise found
        return found

    def show(self, storage: Json, root: str) -> StorageView:
        """A storage's proxy URL is shown while its file browser would answer. `root` is where the caller reaches this
        API."""
        would_answer = isinstance(self._plan(storage), Target)
        path = f"/api/v1/gpu-storages/{storage['metadata']['name']}/proxy/"
        return view_storage(storage, f"{root}{path}" if would_answer else None)

    def _plan(self, storage: Json) -> Target | ApiError:
        pods = self._cluster.pods_of(storage)
        return plan_accessor(storage, pods, development_addresses=self._development_addresses)


class StorageService(ObjectService):
    path = GPU_STORAGES
    what = "storage"

    def __init__(
        self, cluster: Cluster, limits: ObjectLimits, now: Callable[[], datetime], *, development_addresses: bool
    ) -> None:
        super().__init__(cluster, limits, now)
        self._declarations = Declarations(cluster.client, limits, self.path, self.what, now)
        self._ends = OperationEnds(cluster.client)
        self.targets = StorageTargets(cluster, development_addresses=development_addresses)

    async def accept(self, caller: Caller, body: CreateStorage) -> Accepted[Json]:
        request = normalise_storage(body.to_request())
        wanted = build_creation(caller, body.operation_id, OperationKind.CREATE_STORAGE, "GPUStorage", request)
        storage = build_storage(request, caller.namespace, body.operation_id, spec_of(wanted).request_hash)
        return await self._declarations.accept(caller, wanted, storage, partial(self._check_source, caller, request))

    async def update(self, caller: Caller, name: str, change: StorageChange, if_match: str | None) -> Json:
        async def write(storage: Json) -> Json:
            accepted = GPUStorageSpec.model_validate(as_accepted(storage)["spec"])
            after = merge_storage_change(_as_large_as(accepted, storage), change)
            if after == accepted:
                return as_accepted(storage)
            return await self.client.replace(self.path.item(name, caller.namespace), with_accepted_spec(storage, after))

        return await self._change(caller, name, if_match, write)

    async def delete(self, caller: Caller, name: str, if_match: str | None) -> None:
        seen = await self._get_own(caller, name)
        check_match(seen, self.what, if_match)
        try:
            await delete_unused_storage(self.client, seen, partial(self._record_deletion, caller))
        except StorageHeldError as error:
            raise in_use_error(error) from error
        except ConflictError:
            raise changed_by_others(self.what, name) from None

    async def recover(self, caller: Caller, name: str, operation_id: str) -> Json:
        """The storage, once its controller is told; as it is now, when that was done before."""
        target = target_of("GPUStorage", await self.get(caller, name))
        wanted = build_act(caller, operation_id, OperationKind.RECOVER_STORAGE, target)
        for _ in range(BEGINNINGS):
            opened = await self._limits.find_replay(caller, wanted) or await open_for_tenant(self.client, wanted)
            if opened.is_new:
                pass_point("api.recovery-recorded")
                return await self._carry_out_recovery(caller, opened.operation)
            check_replay(opened.operation, wanted)
            if await self._ends.wait(opened.operation) is not None:
                return await self.get(caller, name)
        raise being_undone(operation_id)

    async def _carry_out_recovery(self, caller: Caller, operation: Json) -> Json:
        storage = await carry_out(self.client, operation, self.what, lambda: self._tell(caller, operation))
        uid = storage["metadata"]["uid"]
        # Otherwise the operations controller saw the nonce, and marked it.
        with suppress(ConflictError, NotFoundError):
            await finish_operation(self.client, operation, OperationPhase.SUCCEEDED, self._now(), target_uid=uid)
        return storage

    async def _tell(self, caller: Caller, operation: Json) -> Json:
        target = operation["spec"]["target"]
        name = target["name"]
        for _ in range(TRIES):
            storage = await self.get(caller, name)
            if storage["metadata"]["uid"] != target["uid"]:
                raise object_not_found(self.what, name)
            try:
                check_recovery(storage)
            except RecoveryRefusedError as error:
                raise conflict(f"the storage {name!r} cannot be prepared anew: {error}") from error
            try:
                patch = build_recovery(storage, operation["metadata"]["name"])
                told = await self.client.patch(self.path.item(name, caller.namespace), patch)
            except ConflictError:
                continue
            except NotFoundError:
                raise object_not_found(self.what, name) from None
            pass_point("api.recovery-told")
            return told
        raise conflict(f"the storage {name!r} is being changed again and again; try again")

    async def _check_source(self, caller: Caller, request: StorageRequest) -> None:
        """One that goes after this look is missed by the storage's controller, which says so."""
        source = request.prepare.from_storage_name if request.prepare else None
        if source is None:
            return
        found = await find(self.client, self.path, source, caller.namespace)
        if found is None or "deletionTimestamp" in found["metadata"]:
            raise not_found("gpustorage_not_found", f"prepare.fromStorageName: there is no storage {source!r}")

    async def _get_changeable(self, caller: Caller, name: str) -> Json:
        """The storage as it is, not as it was accepted: one that was let grow by other means cannot shrink again."""
        return await self._get_own(caller, name)


def _as_large_as(accepted: GPUStorageSpec, storage: Json) -> GPUStorageSpec:
    """A change is one of what was accepted: it must not make somebody's edit a part of it. But what somebody let grow
    cannot shrink again, so the size that is there is where a change begins."""
    there = storage["spec"]["size"]
    return (
        accepted.model_copy(update={"size": there}) if parse_amount(there) > parse_amount(accepted.size) else accepted
    )
