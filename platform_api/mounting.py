"""The storages that a unit mounts: looked at before anything is taken for it, and refused in words for the caller."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from gpu_platform.domain.mount_holds import HolderKind, hold_of, unit_holder
from gpu_platform.kube.paths import GPU_STORAGES
from gpu_platform.kube.requests import find
from gpu_platform.store.storages import StorageHeldError, StorageMissingError
from platform_api.bounded_client import BoundedClient
from platform_api.http.errors import ApiError, not_found, storage_in_use


async def check_mounts(client: BoundedClient, namespace: str, unit: str, storages: Iterable[str]) -> None:
    """It spares a claim that would have to be given back, and a Secret. Holding them is what decides."""
    with mounts_refused_in_words():
        for name in storages:
            storage = await find(client, GPU_STORAGES, name, namespace)
            if storage is None or "deletionTimestamp" in storage["metadata"]:
                raise StorageMissingError(name)
            hold = hold_of(storage)
            if hold is not None and hold.holder != unit_holder(unit):
                raise StorageHeldError(name, hold.holder)


@contextmanager
def mounts_refused_in_words() -> Iterator[None]:
    try:
        yield
    except StorageMissingError as error:
        raise not_found(
            "gpustorage_not_found", f"storageMounts: there is no storage {error.name!r}; create it first"
        ) from error
    except StorageHeldError as error:
        raise in_use_error(error) from error


def in_use_error(error: StorageHeldError) -> ApiError:
    name, holder = error.name, error.holder
    if holder.kind is HolderKind.UNIT:
        return storage_in_use(
            f"the storage {name!r} is mounted by the unit {holder.name!r}; one unit at a time may have it: unmount it "
            "there, or delete that unit"
        )
    return storage_in_use(f"the storage {name!r} is being copied into the storage {holder.name!r}; wait for its end")
