"""What callers say about units, and what they are shown."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from gpu_platform.domain import names
from gpu_platform.domain.conditions import find_condition
from gpu_platform.domain.gpu_units import (
    Access,
    GPUUnitSpec,
    GPUUnitStatus,
    Phase,
    Serverless,
    StorageMount,
    Template,
)
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.specs import SpecName
from gpu_platform.domain.ssh import Ssh, SshBlock, SshStatus, SshWish
from gpu_platform.domain.stacks import stack_name_of
from gpu_platform.domain.tenants import tenant_of
from gpu_platform.domain.units import Image, StorageMounts, UnitRequest, accept_ssh_wish
from gpu_platform.domain.value import Value
from gpu_platform.nats.subjects import consumer_name
from platform_api.fields import DnsLabel, OperationID, StackName, StackRecorded

Json = dict[str, Any]


class CreateUnit(Value):
    """A unit to rent. Its size is the spec's."""

    operation_id: OperationID
    name: Annotated[DnsLabel, Field(description="Unique among the tenant's units.")]
    spec_name: SpecName
    image: Image
    template: Template = Template()
    access: Access | None = None
    serverless: Serverless | None = None
    ssh: SshWish | None = None
    storage_mounts: StorageMounts = ()
    namespace: Annotated[str | None, Field(description="The tenant's own, if it is said at all.")] = None
    stock_namespace: Annotated[str | None, Field(description="runtime-stock, if it is said at all.")] = None
    stock_name: Annotated[
        str | None, Field(max_length=63, description="Take this very stock unit, and no other one.")
    ] = None

    def to_request(self) -> UnitRequest:
        return UnitRequest(
            name=self.name,
            spec_name=self.spec_name,
            image=self.image,
            template=self.template,
            access=self.access,
            serverless=self.serverless,
            ssh=accept_ssh_wish(self.ssh),
            storage_mounts=self.storage_mounts,
            stock_name=self.stock_name,
        )


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


def view_of(unit: Json) -> UnitView:
    metadata = unit["metadata"]
    annotations = annotations_of(unit)
    spec = GPUUnitSpec.model_validate(unit["spec"])
    status = GPUUnitStatus.model_validate(unit.get("status") or {})
    ready = find_condition(status.conditions, "Ready")
    published = find_condition(status.conditions, "Published")
    is_leaving = "deletionTimestamp" in metadata
    return UnitView(
        name=metadata["name"],
        namespace=metadata["namespace"],
        spec_name=spec.spec_name,
        source_stock_name=annotations.get(names.ANNOTATION_SOURCE_STOCK_NAME),
        source_stock_namespace=annotations.get(names.ANNOTATION_SOURCE_STOCK_NAMESPACE),
        operation_id=annotations.get(names.ANNOTATION_OPERATION_ID),
        image=spec.image,
        memory=spec.memory,
        gpu=spec.gpu,
        template=spec.template,
        access=spec.access,
        serverless=spec.serverless,
        serverless_status=_serverless_status(metadata["namespace"], spec.serverless),
        ssh=_ssh_view(spec.ssh),
        ssh_status=None if is_leaving else status.ssh,
        storage_mounts=spec.storage_mounts,
        running=spec.running,
        phase=Phase.TERMINATING if is_leaving else status.phase or Phase.PENDING,
        ready_replicas=status.ready_replicas,
        generation=metadata.get("generation", 1),
        observed_generation=status.observed_generation,
        last_sync_time=status.last_sync_time,
        created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
        node_name=status.node_name,
        service_name=status.service_name,
        access_url=None if is_leaving else status.access_url,
        public_url=None if is_leaving else status.public_url,
        public_message=published.message if published and not is_leaving else None,
        stack=stack_name_of(unit),
        reason=ready.reason if ready else None,
        message=ready.message if ready else None,
    )


def _ssh_view(ssh: Ssh | None) -> SshView | None:
    if ssh is None:
        return None
    return SshView.model_validate({**ssh.model_dump(), "has_token": ssh.token_hash is not None})


def _serverless_status(namespace: str, serverless: Serverless | None) -> ServerlessStatus | None:
    tenant = tenant_of(namespace)
    if serverless is None or tenant is None:
        return None
    framework = serverless.framework
    return ServerlessStatus(
        consumer=consumer_name(tenant, serverless.request_id),
        socket_path=framework.socket_path,
        invoke_path=framework.invoke_path,
        health_path=framework.health_path,
    )
