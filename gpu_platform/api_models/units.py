"""Requests and answers about units: create, read, address, GPU metrics."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from gpu_platform.api_models.fields import DnsLabel, OperationID, StackName, StackRecorded
from gpu_platform.domain.specs import SpecName
from gpu_platform.domain.ssh import SshBlock, SshStatus, SshWish, accept_ssh
from gpu_platform.domain.units import (
    Access,
    Phase,
    Serverless,
    StorageMount,
    Template,
    UnitFields,
    UnitRequest,
)
from gpu_platform.domain.value import Value, fields_of


class CreateUnit(UnitFields):
    """A unit to rent. Its size is the spec's."""

    operation_id: OperationID
    name: Annotated[DnsLabel, Field(description="Unique among the tenant's units.")]
    spec_name: SpecName
    ssh: SshWish | None = None
    namespace: Annotated[str | None, Field(description="The tenant's own, if it is said at all.")] = None
    stock_namespace: Annotated[str | None, Field(description="runtime-stock, if it is said at all.")] = None
    stock_name: Annotated[
        str | None, Field(max_length=63, description="Take this very stock unit, and no other one.")
    ] = None

    def to_request(self) -> UnitRequest:
        return UnitRequest(**(fields_of(self, UnitRequest) | {"ssh": accept_ssh(self.ssh)}))


class ServerlessStatus(Value):
    """Where a unit's calls come from, and where its code takes them."""

    consumer: Annotated[str, Field(description="The consumer of its function, which all of its workers share.")]
    socket_path: str
    invoke_path: str
    health_path: str


class SshView(SshBlock):
    """SSH into the unit, without the token."""

    has_token: Annotated[bool, Field(description="Whether the FRP server is told a token.")] = False


class UnitView(Value):
    """A unit, as its tenant sees it."""

    name: str
    namespace: str
    lifecycle: Literal["instance"] = "instance"
    spec_name: str
    source_stock_name: str | None = None
    source_stock_namespace: str | None = None
    operation_id: Annotated[str | None, Field(alias="operationID")] = None
    image: str | None = None
    memory: str | None = None
    gpu: int | None = None
    template: Template
    access: Access | None = None
    serverless: Serverless | None = None
    serverless_status: ServerlessStatus | None = None
    ssh: SshView | None = None
    ssh_status: SshStatus | None = None
    storage_mounts: tuple[StorageMount, ...] = ()
    running: bool
    phase: Phase
    ready_replicas: int
    generation: int
    observed_generation: int | None = None
    last_sync_time: datetime | None = None
    created_at: datetime
    node_name: str | None = None
    service_name: str | None = None
    access_url: Annotated[
        str | None, Field(alias="accessURL", description="Where it answers inside the cluster; only while it does.")
    ] = None
    proxy_url: Annotated[
        str | None,
        Field(alias="proxyURL", description="Where this API passes calls on to it; only while somebody would answer."),
    ] = None
    public_url: Annotated[
        str | None,
        Field(alias="publicURL", description="Of a public one: where everybody can call it; only while that works."),
    ] = None
    public_message: Annotated[
        str | None, Field(description="Of a public one: what its public URL waits for, or that it is there.")
    ] = None
    stack: StackName = None
    stack_recorded: StackRecorded = None
    reason: str | None = None
    message: str | None = None


class AddressView(Value):
    """Where the unit answers."""

    url: str
    reach: Annotated[Literal["cluster", "host"], Field(description="From where: inside the cluster, or this machine.")]
    proxy_url: Annotated[
        str | None, Field(alias="proxyURL", description="From everywhere, with a key: through this API.")
    ] = None
    public_url: Annotated[
        str | None, Field(alias="publicURL", description="From everywhere, for everybody: of a public unit.")
    ] = None


class GpuView(Value):
    """One GPU, or one partition of one. What it did not say is left out."""

    gpu: Annotated[str, Field(description="Its number on its node.")]
    uuid: str
    product: str
    node: str
    partition: Annotated[str | None, Field(description="Of a GPU that is shared out: which part.")] = None
    utilization_percent: float | None = None
    memory_used_mib: Annotated[float | None, Field(alias="memoryUsedMiB")] = None
    memory_free_mib: Annotated[float | None, Field(alias="memoryFreeMiB")] = None
    memory_total_mib: Annotated[float | None, Field(alias="memoryTotalMiB")] = None


class UnitMetricsView(Value):
    """What the GPUs of a unit say."""

    unit: str
    read_at: Annotated[datetime, Field(description="When the exporter was asked.")]
    devices: Annotated[
        tuple[GpuView, ...],
        Field(description="Empty while the unit has no pod, or nobody says which GPUs are its own."),
    ]
