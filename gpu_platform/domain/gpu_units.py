"""GPUUnit: a running image with GPUs. Stock in `runtime-stock`, a tenant's instance anywhere else."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from gpu_platform.domain.conditions import Condition
from gpu_platform.domain.specs import GPU_LIMIT, QuantityText, SpecName
from gpu_platform.domain.ssh import Ssh, SshStatus
from gpu_platform.domain.value import Value

Port = Annotated[int, Field(ge=1, le=65_535)]
PortName = Annotated[
    str,
    # As Kubernetes has it: lower-case letters, digits, single hyphens inside, and a letter somewhere.
    Field(pattern=r"^([0-9]+-)*[0-9]*[a-z][a-z0-9]*(-[a-z0-9]+)*$", max_length=15),
]
Words = Annotated[tuple[str, ...], Field(max_length=1_000)]


class Phase(StrEnum):
    PENDING = "Pending"
    PROGRESSING = "Progressing"
    READY = "Ready"
    STOPPED = "Stopped"
    FAILED = "Failed"
    TERMINATING = "Terminating"


class Reason(StrEnum):
    """Why the conditions Ready, SSHReady and Published are as they are."""

    UNIT_PROGRESSING = "UnitProgressing"
    UNIT_READY = "UnitReady"
    STOCK_NOT_READY = "StockNotReady"
    STOCK_READY = "StockReady"
    STOCK_CLAIMED = "StockClaimed"
    INVALID_SPEC = "InvalidSpec"
    ACCESS_CONFIG_INVALID = "AccessConfigInvalid"
    SERVERLESS_CONFIG_INVALID = "ServerlessConfigInvalid"
    SSH_CONFIG_INVALID = "SSHConfigInvalid"
    UNIT_SSH_PENDING = "UnitSSHPending"
    UNIT_SSH_READY = "UnitSSHReady"
    UNIT_SSH_FAILED = "UnitSSHFailed"
    UNIT_PUBLISHED = "UnitPublished"
    UNIT_NOT_PUBLISHED = "UnitNotPublished"
    POD_STARTUP_FAILED = "PodStartupFailed"
    UNIT_SERVICE_SYNC_FAILED = "UnitServiceSyncFailed"
    UNIT_ROUTE_SYNC_FAILED = "UnitRouteSyncFailed"
    UNIT_NETWORK_POLICY_SYNC_FAILED = "UnitNetworkPolicySyncFailed"
    UNIT_DEPLOYMENT_SYNC_FAILED = "UnitDeploymentSyncFailed"
    STORAGE_NOT_READY = "StorageNotReady"
    STORAGE_MOUNT_INVALID = "StorageMountInvalid"
    UNSCHEDULABLE = "Unschedulable"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    TERMINATING = "Terminating"


class EnvVar(Value):
    """A variable of the container's environment."""

    name: Annotated[
        str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$", max_length=256, description="Unique in the list.")
    ]
    value: Annotated[str, Field(description="Shown to whoever may read the unit: not for secrets.")] = ""


class UnitPort(Value):
    """A port that the image listens on."""

    name: Annotated[PortName, Field(description="How `access` and the probes speak of it.")]
    port: Annotated[Port, Field(description="Its number.")]
    protocol: Annotated[Literal["TCP", "UDP", "SCTP"], Field(description="What is spoken on it.")] = "TCP"


class HttpProbe(Value):
    """Well is what answers a GET with a status from 200 to 399."""

    path: Annotated[str, Field(description="What is asked for.")] = "/"
    port: Annotated[PortName, Field(description="Name of one of the ports.")]


class TcpProbe(Value):
    """Healthy while the port accepts connections."""

    port: Annotated[PortName, Field(description="Name of one of the TCP ports.")]


class Probe(Value):
    """How the container is asked for its health. Exactly one of `http`, `tcp` and `command`."""

    http: HttpProbe | None = None
    tcp: TcpProbe | None = None
    command: Annotated[
        Words | None, Field(min_length=1, description="Run in the container; well is what exits with 0.")
    ] = None
    initial_delay_seconds: Annotated[int, Field(ge=0, le=3_600, description="Before the first question.")] = 0
    period_seconds: Annotated[int, Field(ge=1, le=3_600, description="Between two questions.")] = 10
    timeout_seconds: Annotated[int, Field(ge=1, le=300, description="For one answer.")] = 1
    failure_threshold: Annotated[int, Field(ge=1, le=1_000, description="Bad answers in a row that count.")] = 3


class Probes(Value):
    """How the container's health is known. Without any, running means ready."""

    startup: Annotated[Probe | None, Field(description="Until it is well, the others wait.")] = None
    readiness: Annotated[Probe | None, Field(description="While it is not well, the unit is not Ready.")] = None
    liveness: Annotated[Probe | None, Field(description="When it is not well, the container starts anew.")] = None


class Template(Value):
    """What runs. An empty command keeps the image's own entrypoint."""

    command: Annotated[Words, Field(description="Instead of the image's entrypoint.")] = ()
    args: Annotated[Words, Field(description="Arguments of the command or entrypoint.")] = ()
    envs: Annotated[tuple[EnvVar, ...], Field(max_length=1_000, description="Environment of the container.")] = ()
    ports: Annotated[tuple[UnitPort, ...], Field(max_length=64, description="Ports of the unit's Service.")] = ()
    probes: Probes | None = None


class Access(Value):
    """Which port the unit's URLs are about; without it, the first one."""

    primary_port: Annotated[str | None, Field(description="Name of one of the template's ports.")] = None
    scheme: Annotated[Literal["http", "https", "tcp"], Field(description="First word of the access URL.")] = "http"
    public: Annotated[
        bool | None,
        Field(description="Give it an address on the internet too, where everybody can call it, without a key."),
    ] = None
    tenant: Annotated[
        bool | None, Field(description="Let the other units of its tenant call it, on all ports of the template.")
    ] = None


def why_not_public(access: Access, primary_port: UnitPort | None) -> str | None:
    """Why a unit with this access cannot have an address on the internet; None when it can."""
    if primary_port is None:
        return "the template has no ports; add one that the public can call"
    if access.scheme == "http" and primary_port.protocol == "TCP":
        return None
    spoken = access.scheme if primary_port.protocol == "TCP" else primary_port.protocol
    return f"only plain HTTP can be public, and {primary_port.name!r} speaks {spoken}"


SOCKET_DIRECTORY = "/tmp/serverless-framework"  # noqa: S108 - a place that both containers share


class Framework(Value):
    """Where the code in the image takes its calls: HTTP over a Unix socket."""

    socket_path: Annotated[
        str,
        Field(
            pattern=r"^/tmp/serverless-framework/[A-Za-z0-9_.-]{1,40}$",
            description=f"A file in {SOCKET_DIRECTORY}.",
        ),
    ] = f"{SOCKET_DIRECTORY}/framework.sock"
    invoke_path: Annotated[str, Field(pattern=r"^/[!-~]{1,200}$", description="POST: run a call.")] = "/invoke"
    health_path: Annotated[str, Field(pattern=r"^/[!-~]{1,200}$", description="GET: well is what answers 200.")] = (
        "/healthz"
    )


class Serverless(Value):
    """The unit takes calls of a function. A function that does not exist is made after the unit."""

    request_id: Annotated[
        str,
        Field(
            alias="requestID",
            pattern=r"^[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?$",
            description="The function whose calls it takes.",
        ),
    ]
    min_available_count: Annotated[
        int, Field(ge=0, le=100, description="Workers that are always there, of a function made after the unit.")
    ] = 0
    idle_timeout_seconds: Annotated[
        int, Field(ge=1, le=86_400, description="As in a GPUFunction, of a function made after the unit.")
    ] = 300
    framework: Framework = Framework()


class StorageMount(Value):
    """A storage of the same namespace in the unit's file system. One unit at a time may mount it."""

    name: Annotated[str, Field(min_length=1, max_length=40, description="Name of the GPUStorage; unique in the list.")]
    mount_path: Annotated[
        str,
        Field(
            min_length=1, max_length=1_000, description="Absolute path of a directory; not `/`, and unique in the list."
        ),
    ]
    read_only: Annotated[bool, Field(description="Whether the unit may only read it.")] = False


class GPUUnitSpec(Value):
    """What the unit is to be. Its size is fixed: it holds the GPUs of the stock that it was made from."""

    spec_name: SpecName
    image: Annotated[str | None, Field(description="Without one, a placeholder that only holds the GPUs.")] = None
    memory: Annotated[QuantityText | None, Field(description="A quantity; by default the spec's.")] = None
    gpu: Annotated[int | None, Field(ge=0, le=GPU_LIMIT, description="GPUs; by default the spec's.")] = None
    template: Template = Template()
    access: Access | None = None
    serverless: Serverless | None = None
    ssh: Ssh | None = None
    storage_mounts: Annotated[
        tuple[StorageMount, ...], Field(max_length=32, description="Storages that the unit works with.")
    ] = ()
    running: Annotated[bool, Field(description="False frees the GPUs and keeps the unit.")] = True
    restarts: Annotated[
        int, Field(ge=0, le=1_000_000, description="How often a restart was asked for: one more starts it anew.")
    ] = 0

    @property
    def primary_port(self) -> UnitPort | None:
        """The port that its URLs are about; None when it has none, or not the one that it names."""
        wanted = self.access.primary_port if self.access else None
        return next((port for port in self.template.ports if wanted in (None, port.name)), None)


class GPUUnitStatus(Value):
    """What the unit is."""

    phase: Annotated[Phase | None, Field(description="The state in one word; the condition Ready says why.")] = None
    ready_replicas: Annotated[int, Field(description="1 when the unit's pod is ready.")] = 0
    observed_generation: Annotated[int | None, Field(description="Generation of the spec that was looked at.")] = None
    last_sync_time: Annotated[datetime | None, Field(description="When this status was last written.")] = None
    node_name: Annotated[str | None, Field(description="Where the unit's pod runs.")] = None
    service_name: Annotated[str | None, Field(description="The Service in front of the unit's ports.")] = None
    access_url: Annotated[str | None, Field(alias="accessURL", description="Where the unit answers.")] = None
    public_url: Annotated[
        str | None, Field(alias="publicURL", description="Where everybody can call the unit; only while that works.")
    ] = None
    ssh: SshStatus | None = None
    conditions: Annotated[
        tuple[Condition, ...],
        Field(description="Ready; of one with SSH also SSHReady, of a public one Published: why or why not."),
    ] = ()
