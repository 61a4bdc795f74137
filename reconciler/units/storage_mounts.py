"""Whether a unit may have the storages that it mounts. Pure.

A unit's pod is given a storage only while the unit holds it (`gpu_platform.domain.mount_holds`).
"""

from gpu_platform.domain import names
from gpu_platform.domain.gpu_storages import GPUStorageStatus, is_mountable
from gpu_platform.domain.gpu_units import GPUUnitSpec, Phase, Reason
from gpu_platform.domain.mount_holds import hold_of, unit_holder
from gpu_platform.domain.units import RequestError, normalise_mounts
from reconciler.units.observed import Observed
from reconciler.units.status import Verdict


def find_mount_problem(observed: Observed, spec: GPUUnitSpec) -> Verdict | None:
    """
    | mount                                     | verdict                        |
    | ----------------------------------------- | ------------------------------ |
    | of stock                                  | Failed · StorageMountInvalid   |
    | name or path is wrong, or there twice     | Failed · StorageMountInvalid   |
    | storage is missing, or leaves unheld      | Failed · StorageMountInvalid   |
    | storage is held for somebody else         | Failed · StorageMountInvalid   |
    | any other                                 | none                           |
    """
    if spec.storage_mounts and names.is_stock_namespace(observed.unit["metadata"]["namespace"]):
        return _invalid(
            "spec.storageMounts: stock mounts nothing; its storages come with the unit that is made from it"
        )
    try:
        normalise_mounts(spec.storage_mounts)
    except RequestError as error:
        return _invalid(f"spec.{error}")
    for mount in spec.storage_mounts:
        if message := _find_obstacle(observed, mount.name):
            return _invalid(f"spec.storageMounts: {message}")
    return None


def find_waits(observed: Observed, spec: GPUUnitSpec) -> Verdict | None:
    """Progressing while a storage is not Ready, or not yet held for this unit."""
    waits = [text for mount in spec.storage_mounts if (text := _find_wait(observed, mount.name))]
    if not waits:
        return None
    return Verdict(Phase.PROGRESSING, Reason.STORAGE_NOT_READY, f"waits for storage {', '.join(waits)}")


def _find_obstacle(observed: Observed, name: str) -> str | None:
    storage = observed.storages.get(name)
    if storage is None:
        return f"there is no GPUStorage {name!r}; see `kubectl get gpustorages`"
    hold = hold_of(storage)
    if hold is not None and hold.holder != unit_holder(observed.unit["metadata"]["name"]):
        return f"storage {name!r} is in use by {hold.holder}"
    if hold is None and "deletionTimestamp" in storage["metadata"]:
        return f"storage {name!r} is being deleted"
    return None


def _find_wait(observed: Observed, name: str) -> str | None:
    storage = observed.storages[name]
    if hold_of(storage) is not None and is_mountable(storage):
        return None
    phase = GPUStorageStatus.model_validate(storage.get("status") or {}).phase
    return f"{name} ({phase or 'Pending'})"


def _invalid(message: str) -> Verdict:
    return Verdict(Phase.FAILED, Reason.STORAGE_MOUNT_INVALID, message)
