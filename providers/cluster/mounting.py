"""Holding the storages that a unit mounts, for a unit that the provider makes or changes."""

from datetime import datetime
from typing import Any

from gpu_platform.domain.gpu_units import GPUUnitSpec
from gpu_platform.kube import KubeClient
from gpu_platform.store.storages import StorageHeldError, StorageMissingError, hold_storages
from gpu_platform.store.unit_writes import mounted_storages
from providers.cluster.objects import Wanted
from providers.protocol.failures import ResourceFailedError

Json = dict[str, Any]


async def hold_mounts(client: KubeClient, wanted: Wanted, live: Json | None, now: datetime) -> tuple[Json, ...]:
    """What it mounts, and what is there mounts not yet. ResourceFailedError: one of them is not to be had."""
    if not isinstance(wanted.spec, GPUUnitSpec) or wanted.namespace is None:
        return ()
    mounted = mounted_storages(live) if live is not None else set()
    added = {mount.name for mount in wanted.spec.storage_mounts} - mounted
    try:
        return await hold_storages(client, wanted.namespace, wanted.name, added, now)
    except StorageMissingError as error:
        raise ResourceFailedError(f"{wanted.label} mounts the storage {error.name!r}, which does not exist") from error
    except StorageHeldError as error:
        raise ResourceFailedError(
            f"{wanted.label} mounts the storage {error.name!r}, which {error.holder} uses; one at a time may have it"
        ) from error
