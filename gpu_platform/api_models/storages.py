"""Requests and answers about storages."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from gpu_platform.api_models.fields import DnsLabel, OperationID, StackName, StackRecorded
from gpu_platform.domain.storages import AccessorStatus, GPUStorageSpec, PrepareStatus, StoragePhase, StorageRequest
from gpu_platform.domain.value import Value


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
