"""All that can be done with storages, put together once per process. Whatever is changed, is so as it was seen."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from gpu_platform.adapters.storage_deletions import delete_unused_storage
from gpu_platform.domain.gpu_storages import GPUStorageSpec, StoragePhase
from gpu_platform.domain.quantities import parse_amount
from gpu_platform.domain.stacks import as_accepted
from gpu_platform.domain.storages import StorageChange, merge_storage_change
from gpu_platform.domain.units import with_accepted_spec
from gpu_platform.kube import ConflictError
from gpu_platform.kube.paths import GPU_STORAGES
from gpu_platform.store.ledger import build_deletion, open_operation, settle_creation
from gpu_platform.store.storages import StorageHeldError
from platform_api.auth.keys import Caller
from platform_api.cluster import Cluster
from platform_api.mounting import in_use_error
from platform_api.objects.limits import ObjectLimits
from platform_api.objects.optimistic_update import change_as_seen, changed_by_others, check_match
from platform_api.ownership import refuse_owned
from platform_api.paging import build_phase_selectors, read_page
from platform_api.stacks.recording import RecordingWaits
from platform_api.storages.acceptance import StorageAcceptance
from platform_api.storages.recovery import Recoveries, get_storage
from platform_api.storages.targets import StorageTargets
from platform_api.storages.views import StorageView, view_of

Json = dict[str, Any]


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
        return view_of(storage, f"{root}{path}" if path else None)

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
