"""Where the files of a storage are read: whether its file browser answers at this moment, as a table, and the inputs
out of the caches.
"""

from collections.abc import Iterable

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.mount_holds import HolderKind, hold_of
from gpu_platform.domain.storages import GPUStorageSpec
from platform_api.http.errors import ApiError, not_ready
from platform_api.proxy.pod_address import Simulated, Target, plan_address


def plan_accessor(storage: Json, pods: Iterable[Json], *, development_addresses: bool) -> Target | ApiError:
    """
    | storage       | file browser | its pod is ready    | answer                               |
    | ------------- | ------------ | ------------------- | ------------------------------------ |
    | being deleted | any          | any                 | not ready: Terminating               |
    | any           | off          | any                 | not ready: how to open it            |
    | being copied  | on           | no                  | not ready: for which storage         |
    | any           | on           | no                  | not ready: see the accessor's status |
    | any           | on           | on a simulated node | not ready: nothing runs              |
    | any           | on           | yes                 | the pod's address                    |
    """
    metadata = storage["metadata"]
    what = f"the storage {metadata['name']!r}"
    if "deletionTimestamp" in metadata:
        return not_ready(f"{what} is Terminating")
    if not GPUStorageSpec.model_validate(storage["spec"]).accessor.enabled:
        return not_ready(f"{what} has no file browser; set accessor.enabled to open one")
    address = plan_address(pods, development_addresses=development_addresses)
    hold = hold_of(storage)
    if address is None and hold is not None and hold.holder.kind is HolderKind.STORAGE:
        return not_ready(f"the file browser of {what} is away while {hold.holder} is filled from it")
    if address is None:
        return not_ready(f"the file browser of {what} is not ready; see its accessorStatus")
    if isinstance(address, Simulated):
        return not_ready(f"the file browser of {what} {address.why}")
    host = f"{names.accessor_name(metadata['name'])}.{metadata['namespace']}.svc.cluster.local"
    return Target(what, address, names.ACCESSOR_PORT, f"{host}:{names.ACCESSOR_PORT}")
