"""Accepting a storage: a declaration, whose source is there if it is to be a copy."""

from collections.abc import Callable
from datetime import datetime
from functools import partial

from gpu_platform.domain.operations import OperationKind
from gpu_platform.domain.storages import StorageRequest, build_storage, normalise_storage
from gpu_platform.kube.paths import GPU_STORAGES
from gpu_platform.kube.requests import find
from gpu_platform.store.ledger import spec_of
from platform_api.auth.keys import Caller
from platform_api.bounded_client import BoundedClient
from platform_api.declarations import Declarations, Declared
from platform_api.http.errors import not_found
from platform_api.objects.idempotent_create import build_creation
from platform_api.objects.limits import ObjectLimits
from platform_api.storages.views import CreateStorage


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
