"""All that can be done with storages, put together once per process. Whatever is changed, is so as it was seen."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from gpu_platform.adapters.kube import ConflictError, GoneError, NotFoundError
from gpu_platform.adapters.kube.paths import GPU_STORAGES
from gpu_platform.adapters.ledger import build_deletion, open_operation, settle_creation
from gpu_platform.adapters.storage_deletions import delete_unused_storage
from gpu_platform.adapters.storage_mounts import StorageHeldError
from gpu_platform.domain.gpu_storages import GPUStorageSpec, StoragePhase
from gpu_platform.domain.quantities import parse_amount
from gpu_platform.domain.stacks import as_accepted
from gpu_platform.domain.storage_requests import StorageChange, merge_storage_change
from gpu_platform.domain.unit_requests import with_accepted_spec
from platform_api.cluster import Cluster
from platform_api.http.errors import changed_meanwhile, conflict, in_progress, invalid_field
from platform_api.http.etags import etag_of, is_matched
from platform_api.keys.key_ring import Caller
from platform_api.mounting import in_use_error
from platform_api.ownership import refuse_owned
from platform_api.stacks.recording import RecordingWaits
from platform_api.storages.acceptance import StorageAcceptance
from platform_api.storages.recovery import Recoveries, get_storage, storage_not_found
from platform_api.storages.targets import StorageTargets

Json = dict[str, Any]

TRIES = 5
"""Against others who write the same storage, mostly the reconciler its status."""


class StorageService:
    def __init__(self, cluster: Cluster, now: Callable[[], datetime], *, development_addresses: bool) -> None:
        client = self.client = cluster.client
        self.targets = StorageTargets(cluster, development_addresses=development_addresses)
        self.acceptance = StorageAcceptance(client, now)
        self.recoveries = Recoveries(client, now)
        self.recordings = RecordingWaits(client)
        self._now = now

    async def get(self, caller: Caller, name: str) -> Json:
        return await get_storage(self.client, caller.namespace, name)

    async def list_page(
        self, caller: Caller, limit: int, token: str | None, phase: StoragePhase | None
    ) -> tuple[list[Json], str | None]:
        """One page, and the token of the next one. The API server itself narrows it down."""
        params = {"limit": str(limit), "continue": token, "fieldSelector": ",".join(_phase_selectors(phase))}
        given = {key: value for key, value in params.items() if value}
        try:
            page = await self.client.get(GPU_STORAGES.collection(caller.namespace), given)
        except GoneError:
            raise invalid_field("continue", "is too old by now; begin again without it") from None
        return page["items"], page["metadata"].get("continue") or None

    async def update(self, caller: Caller, name: str, change: StorageChange, if_match: str | None) -> Json:
        for _ in range(TRIES):
            storage = await self._get_own(caller, name)
            _check_match(if_match, storage)
            if "deletionTimestamp" in storage["metadata"]:
                raise conflict(f"the storage {name!r} is being deleted")
            accepted = GPUStorageSpec.model_validate(as_accepted(storage)["spec"])
            after = merge_storage_change(_as_large_as(accepted, storage), change)
            if after == accepted:
                return as_accepted(storage)
            try:
                path = GPU_STORAGES.item(name, caller.namespace)
                return await self.client.replace(path, with_accepted_spec(storage, after))
            except ConflictError:
                continue
            except NotFoundError:
                raise storage_not_found(name) from None
        raise in_progress(f"the storage {name!r} is being changed by somebody else; try again")

    async def delete(self, caller: Caller, name: str, if_match: str | None) -> None:
        seen = await self._get_own(caller, name)
        _check_match(if_match, seen)

        async def record(storage: Json) -> Json:
            await settle_creation(self.client, storage, caller.tenant, self._now())
            return (await open_operation(self.client, build_deletion(storage, caller.tenant))).operation

        try:
            await delete_unused_storage(self.client, seen, record)
        except StorageHeldError as error:
            raise in_use_error(error) from error
        except ConflictError:
            raise in_progress(f"the storage {name!r} is being changed by somebody else; try again") from None

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


def _phase_selectors(phase: StoragePhase | None) -> list[str]:
    """A storage that nobody has looked at yet has no phase, and is shown as Pending."""
    if phase is StoragePhase.PENDING:
        return [f"status.phase!={other}" for other in StoragePhase if other is not StoragePhase.PENDING]
    return [f"status.phase={phase}"] if phase else []


def _check_match(if_match: str | None, storage: Json) -> None:
    if not is_matched(if_match, storage):
        name = storage["metadata"]["name"]
        raise changed_meanwhile(f"the storage {name!r} has changed since; its ETag is {etag_of(storage)} now")
