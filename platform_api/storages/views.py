"""What callers say about storages, and what they are shown."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from gpu_platform.domain import names
from gpu_platform.domain.conditions import find_condition
from gpu_platform.domain.gpu_storages import (
    READY,
    AccessorStatus,
    GPUStorageSpec,
    GPUStorageStatus,
    PrepareStatus,
    StoragePhase,
)
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.mount_holds import mounting_unit_of
from gpu_platform.domain.stacks import stack_name_of
from gpu_platform.domain.storages import StorageRequest
from gpu_platform.domain.value import Value
from platform_api.fields import DnsLabel, OperationID, StackName, StackRecorded

Json = dict[str, Any]


class CreateStorage(GPUStorageSpec):
    """A storage to make: how large, of which class, and what it is filled with at first."""

    operation_id: OperationID
    name: Annotated[DnsLabel, Field(description="Unique among the tenant's storages.")]

    def to_request(self) -> StorageRequest:
        return StorageRequest.model_validate(self.model_dump(exclude={"operation_id"}))


class RecoverStorage(Value):
    """A wish to prepare a storage once more, after its preparation has failed."""

    operation_id: OperationID


class StorageView(GPUStorageSpec):
    """A storage, as its tenant sees it."""

    name: str
    namespace: str
    operation_id: Annotated[str | None, Field(alias="operationID")] = None
    phase: StoragePhase
    claim_name: Annotated[str | None, Field(description="The PersistentVolumeClaim with the data.")] = None
    capacity: Annotated[str | None, Field(description="What the bound claim really has.")] = None
    mounted_by: Annotated[tuple[str, ...], Field(description="The unit that mounts it; none or one.")] = ()
    prepare_status: PrepareStatus
    accessor_status: AccessorStatus
    proxy_url: Annotated[
        str | None,
        Field(alias="proxyURL", description="Where its files are seen with a key; only while somebody answers there."),
    ] = None
    generation: int
    observed_generation: int | None = None
    last_sync_time: datetime | None = None
    created_at: datetime
    stack: StackName = None
    stack_recorded: StackRecorded = None
    reason: str | None = None
    message: str | None = None


def view_of(storage: Json, proxy_url: str | None = None) -> StorageView:
    """`proxy_url` is where its file browser answers just now, if it does."""
    metadata = storage["metadata"]
    spec = GPUStorageSpec.model_validate(storage["spec"])
    status = GPUStorageStatus.model_validate(storage.get("status") or {})
    ready = find_condition(status.conditions, READY)
    unit = mounting_unit_of(storage)
    is_leaving = "deletionTimestamp" in metadata
    return StorageView(
        **{field: getattr(spec, field) for field in GPUStorageSpec.model_fields},
        name=metadata["name"],
        namespace=metadata["namespace"],
        operation_id=annotations_of(storage).get(names.ANNOTATION_OPERATION_ID),
        phase=StoragePhase.TERMINATING if is_leaving else status.phase or StoragePhase.PENDING,
        claim_name=status.claim_name,
        capacity=status.capacity,
        # From the hold, not from the status, which follows it.
        mounted_by=(unit,) if unit else (),
        prepare_status=status.prepare,
        # Nobody is left to correct the status where the reconciler is away.
        accessor_status=status.accessor if proxy_url else status.accessor.model_copy(update={"access_url": None}),
        proxy_url=proxy_url,
        generation=metadata["generation"],
        observed_generation=status.observed_generation,
        last_sync_time=status.last_sync_time,
        created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
        stack=stack_name_of(storage),
        reason=ready.reason if ready else None,
        message=ready.message if ready else None,
    )
