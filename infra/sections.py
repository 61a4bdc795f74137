"""What a stack's configuration may say, section by section. `settings` reads it, and checks how they fit together.

The settings of our processes are their own models, narrowed to what the manifests promise: ports that probes and
Services ask, and the Lease that the Roles name, are no matter of configuration in a cluster.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import yaml
from pydantic import AfterValidator, ConfigDict, Field, model_validator

from gpu_platform.domain.limits import TenantLimits
from gpu_platform.domain.quantities import QuantityError, format_bytes, parse_amount, parse_quantity
from gpu_platform.domain.specs import GPUSpecSpec, Toleration
from gpu_platform.domain.stock import CatalogueName, StockPoolSpec
from gpu_platform.domain.tenants import KeyRecord
from gpu_platform.nats.subjects import RESERVED_BYTES
from gpu_platform.settings import Settings, split_address
from platform_api.settings import ApiSettings
from reconciler.rbac import LEASE
from reconciler.settings import ReconcilerSettings, find_route_problem
from stacks.settings import StackWorkerSettings

# On all of the pod's addresses: the kubelet and the Service come from outside.
API_ADDRESS: Final = "0.0.0.0:8080"

API_METRICS_ADDRESS: Final = "0.0.0.0:9405"
API_PROBE_ADDRESS: Final = "0.0.0.0:9406"
METRICS_ADDRESS: Final = "0.0.0.0:9401"
PROBE_ADDRESS: Final = "0.0.0.0:9402"
PASSPHRASE_DIRECTORY: Final = "/etc/gpu-platform-passphrase"  # noqa: S105 - where it lies
STACK_METRICS_ADDRESS: Final = "0.0.0.0:9403"
STACK_PROBE_ADDRESS: Final = "0.0.0.0:9404"
DnsLabel = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
ObjectName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
Replicas = Annotated[int, Field(ge=1, le=100)]
NVIDIA_CHARTS = "https://helm.ngc.nvidia.com/nvidia"
IMAGE = re.compile(r"[a-z0-9][a-z0-9._:/-]*(:(?P<tag>\w[\w.-]{0,127})|@sha256:[0-9a-f]{64})")

STORED_SHARE = Decimal("0.9")
"""Of NATS' volume that JetStream may fill: the file system wants some, and a full one stops every write."""

LEAST_NATS_STORAGE = "10Gi"

LEAST_NATS_MEMORY = "256Mi"
"""Chosen by feel: a server with the platform's streams ran in a container of this size."""

Port = Annotated[int, Field(ge=1, le=65_535)]


class HostedApiSettings(ApiSettings):
    http_addr: Literal["0.0.0.0:8080"] = API_ADDRESS
    metrics_address: Literal["0.0.0.0:9405"] = API_METRICS_ADDRESS
    probe_address: Literal["0.0.0.0:9406"] = API_PROBE_ADDRESS
    auth: Literal["keys"] = "keys"
    kube_mode: Literal["required"] = "required"
    kubeconfig: None = None
    nats_url: Annotated[None, Field(alias="natsURL")] = None
    nats_credentials: None = None
    nats_ca: Annotated[None, Field(alias="natsCA")] = None
    development_addresses: Literal[False] = False

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.tenant_limits.model_fields_set:
            raise ValueError(
                "tenantLimits is a section of its own, which the API reads without a restart; set it there"
            )
        return self


class HostedReconcilerSettings(ReconcilerSettings):
    leader_elect: Literal[True] = True
    lease_namespace: Literal["runtime-system"] = "runtime-system"
    lease_name: Literal["gpu-platform-reconciler"] = LEASE
    metrics_address: Literal["0.0.0.0:9401"] = METRICS_ADDRESS
    probe_address: Literal["0.0.0.0:9402"] = PROBE_ADDRESS
    kubeconfig: None = None
    # Where NATS is, and as whom to come there, is a matter of the section `nats`.
    nats_url: Annotated[None, Field(alias="natsURL")] = None
    nats_credentials: None = None
    nats_ca: Annotated[None, Field(alias="natsCA")] = None
    nats_signing_key: None = None
    nats_system_credentials: None = None

    @model_validator(mode="after")
    def _check_routes(self) -> Self:
        # Here, because a pod that ends at once says it to fewer people than a preview does.
        if problem := find_route_problem(self):
            raise ValueError(problem)
        return self


class HostedStackWorkerSettings(StackWorkerSettings):
    # In the one directory of the pod that can be written.
    state_directory: Path = Path("/tmp/stacks")  # noqa: S108 - the pod's own
    passphrase_file: Path | None = Path(PASSPHRASE_DIRECTORY, "passphrase")
    pulumi: None = None
    metrics_address: Literal["0.0.0.0:9403"] = STACK_METRICS_ADDRESS
    probe_address: Literal["0.0.0.0:9404"] = STACK_PROBE_ADDRESS
    kubeconfig: None = None


HostedSettings = HostedApiSettings | HostedReconcilerSettings | HostedStackWorkerSettings

PROMISED = {
    HostedApiSettings: ("httpAddr", "auth", "kubeMode", "metricsAddress", "probeAddress"),
    HostedReconcilerSettings: ("leaderElect", "leaseNamespace", "leaseName", "metricsAddress", "probeAddress"),
    HostedStackWorkerSettings: ("stateDirectory", "passphraseFile", "metricsAddress", "probeAddress"),
}


def render_settings(settings: HostedSettings, found: Mapping[str, Any] | None = None) -> str:
    """The process's settings file: what is promised, what other sections have to say, and what was said. The rest is
    left to the image's own defaults, because an older image would refuse a key that it does not know yet."""
    everything: dict[str, Any] = settings.model_dump(mode="json", by_alias=True)
    said = settings.model_dump(mode="json", by_alias=True, exclude_unset=True)
    promised = {key: everything[key] for key in PROMISED[type(settings)]}
    return yaml.safe_dump(promised | dict(found or {}) | said, sort_keys=True)


def port_of(address: str) -> int:
    return split_address(address)[1]


def _check_amount(text: str) -> str:
    try:
        parse_amount(text)
    except QuantityError as error:
        raise ValueError(str(error)) from error
    return text


def _check_ceiling(text: str) -> str:
    try:
        is_negative = parse_quantity(text) < 0
    except QuantityError as error:
        raise ValueError(str(error)) from error
    if is_negative:
        raise ValueError(f"{text!r} must not be less than zero")
    return text


def _check_image(text: str) -> str:
    match = IMAGE.fullmatch(text)
    if match is None or match["tag"] == "latest":
        raise ValueError(
            f"{text!r} does not name one version; write repository:tag (not latest) or repository@sha256:…"
        )
    return text


Amount = Annotated[str, AfterValidator(_check_amount)]
"""More than nothing."""

Ceiling = Annotated[str, AfterValidator(_check_ceiling)]
"""Nothing at all is an answer too."""

Image = Annotated[str, AfterValidator(_check_image)]


class Amounts(Settings):
    cpu: Amount
    memory: Amount


class ContainerDefaults(Settings):
    """What a container gets that says nothing itself. Units always say, so that no unit is changed by these."""

    requests: Amounts = Amounts(cpu="100m", memory="128Mi")
    limits: Amounts = Amounts(cpu="1", memory="1Gi")


class Namespace(Settings):
    quota: dict[str, Ceiling] = Field(default={})
    """As in a ResourceQuota's `hard`; empty for none."""

    container_defaults: ContainerDefaults = ContainerDefaults()


class TenantNamespace(Namespace):
    profile: Literal["baseline", "restricted"] = "baseline"
    """The Pod Security profile. Most public GPU images run as root inside, which `restricted` refuses."""

    limits: TenantLimits = TenantLimits()
    """What differs for this tenant from `tenantLimits`."""


class Namespaces(Settings):
    """The platform's own three. Their names are not settings: the processes have to know them."""

    system: Namespace = Namespace()
    stock: Namespace = Namespace()
    instance: TenantNamespace = TenantNamespace()


class StrictToleration(Toleration):
    model_config = ConfigDict(extra="forbid")


class GpuSpec(GPUSpecSpec):
    """An entry of the catalogue."""

    model_config = ConfigDict(extra="forbid")

    cpu: Amount = "1"
    memory: Amount
    ephemeral_storage: Amount | None = None
    tolerations: Annotated[tuple[StrictToleration, ...], Field(max_length=32)] = ()


class StockPool(StockPoolSpec):
    model_config = ConfigDict(extra="forbid")

    spec_name: CatalogueName


class GpuOperator(Settings):
    """The NVIDIA GPU Operator, as a Helm release."""

    enabled: bool = False
    namespace: DnsLabel = "gpu-operator"
    chart: Annotated[str, Field(min_length=1)] = "gpu-operator"
    """A name in the repository, `oci://…`, or a local directory that begins with `.` or `/`."""

    version: Annotated[str, Field(pattern=r"^v?[0-9]+\.[0-9]+\.[0-9]+([-+.][0-9A-Za-z.+-]+)?$")] | None = None
    repository: Annotated[str, Field(pattern=r"^https://")] | None = None
    """Of a chart that is only a name; without one, NVIDIA's. An OCI chart or a local one has none."""

    values: dict[str, Any] = Field(default={})
    timeout_seconds: Annotated[int, Field(ge=60, le=7_200)] = 900
    """For the operator's own pods. The drivers come later, node by node."""

    @model_validator(mode="after")
    def _check_version(self) -> Self:
        if self.enabled and self.version is None:
            raise ValueError("version is needed where enabled is true")
        if self.repository is not None and not self.is_in_repository:
            raise ValueError(f"repository is for a chart that is a name; {self.chart!r} has none, so remove it")
        return self

    @property
    def is_in_repository(self) -> bool:
        return not self.chart.startswith(("oci://", ".", "/"))

    @property
    def chart_repository(self) -> str | None:
        return (self.repository or NVIDIA_CHARTS) if self.is_in_repository else None


class Nats(Settings):
    """JetStream. Never without users and TLS: both come from Secrets that somebody else makes.

    Our processes are its clients where it is enabled, or where `url` says where another one is.
    """

    enabled: bool = False
    url: Annotated[str, Field(pattern=r"^tls://[^/@]+$")] | None = None
    """Of servers that somebody else runs."""

    ca_secret: ObjectName | None = None
    """Its entry `ca.crt` is whom our processes believe there. Of our own servers it is `tls_secret`."""

    api_secret: ObjectName = "nats-api"  # noqa: S105 - an object's name
    """Its entry `nats.creds` is the API's."""

    reconciler_secret: ObjectName = "nats-reconciler"  # noqa: S105 - an object's name
    """Entries `nats.creds`, `system.creds` and `signing.key`."""

    image: Image | None = None
    replicas: Literal[1, 3, 5] = 3
    """Odd, because they vote."""

    storage: Amount = "20Gi"
    """Of each replica: the streams reserve 9Gi, and JetStream gets nine tenths."""

    storage_class: ObjectName | None = None
    """Without one, the cluster's default."""

    users_secret: ObjectName = "nats-users"  # noqa: S105 - an object's name
    """Its entry `users.conf` is the block of the server's configuration that says whom it believes."""

    tls_secret: ObjectName = "nats-tls"  # noqa: S105 - an object's name
    """Entries `tls.crt`, `tls.key` and `ca.crt`, for the names of the Service and of the pods."""

    resources: Amounts = Amounts(cpu="1", memory="2Gi")

    @model_validator(mode="after")
    def _check_image_is_said(self) -> Self:
        if self.enabled and self.image is None:
            raise ValueError("image is needed where enabled is true")
        if self.enabled and self.url is not None:
            raise ValueError("url is of servers that somebody else runs; ours have an address of their own")
        return self

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.enabled and self.stored_bytes < RESERVED_BYTES:
            raise ValueError(
                f"storage is {self.storage!r}, of which JetStream may fill {STORED_SHARE:.0%}, and the streams reserve "
                f"{format_bytes(RESERVED_BYTES)}; write {LEAST_NATS_STORAGE} or more"
            )
        if self.enabled and parse_amount(self.resources.memory) < parse_amount(LEAST_NATS_MEMORY):
            raise ValueError(
                f"resources.memory is {self.resources.memory!r}, too little for the server and its indexes; "
                f"write {LEAST_NATS_MEMORY} or more"
            )
        return self

    @property
    def stored_bytes(self) -> int:
        """What JetStream may fill of each volume."""
        return int(parse_amount(self.storage) * STORED_SHARE)


class Placement(Settings):
    """Which nodes carry the platform's own pods: usually none of those with GPUs."""

    node_selector: dict[str, str] = Field(default={})
    tolerations: tuple[StrictToleration, ...] = ()


class ServiceMonitors(Settings):
    """For a Prometheus Operator."""

    enabled: bool = False
    interval_seconds: Annotated[int, Field(ge=5, le=3_600)] = 30
    labels: dict[str, str] = Field(default={})
    """Those by which a Prometheus finds its monitors."""

    api_key_secret: ObjectName | None = None
    """Ignored, with a warning: the API's metrics need no key any more. Removed in the next release."""


class Network(Settings):
    """What the policies of the platform's own pods leave open."""

    egress_ports: Annotated[tuple[Port, ...], Field(min_length=1)] = (443, 6_443)
    """TCP ports that the processes reach at every address: the Kubernetes API server's, and the Pulumi backend's."""

    metrics_namespaces: tuple[DnsLabel, ...] = ("monitoring",)
    """Whose pods may read the metrics of the processes."""


class Api(Settings):
    replicas: Replicas = 2
    resources: Amounts = Amounts(cpu="1", memory="512Mi")
    settings: HostedApiSettings = HostedApiSettings()


class Reconciler(Settings):
    replicas: Replicas = 2
    resources: Amounts = Amounts(cpu="1", memory="1Gi")
    settings: HostedReconcilerSettings = HostedReconcilerSettings()


class StackWorker(Settings):
    """Keeps a Pulumi stack for each unit and pool. Off where nobody has a backend for them: units are served alike."""

    enabled: bool = False
    replicas: Replicas = 2
    resources: Amounts = Amounts(cpu="2", memory="2Gi")
    passphrase_secret: ObjectName = "gpu-platform-stacks"  # noqa: S105 - where it lies
    """Its entry `passphrase` opens the stacks' secrets."""

    environment_secret: ObjectName | None = None
    """Its entries are environment variables: the credentials of the backend."""

    settings: HostedStackWorkerSettings = HostedStackWorkerSettings()

    @model_validator(mode="after")
    def _check_backend_is_said(self) -> Self:
        if self.enabled and self.settings.backend_url is None:
            raise ValueError("settings.backendURL is needed where enabled is true: a pod's own files end with it")
        return self


class Workloads(Settings):
    """The platform's own processes."""

    enabled: bool = False
    image: Image | None = None
    image_pull_secrets: tuple[ObjectName, ...] = ()
    placement: Placement = Placement()
    api: Api = Api()
    reconciler: Reconciler = Reconciler()
    stack_worker: StackWorker = StackWorker()
    service_monitors: ServiceMonitors = ServiceMonitors()
    network: Network = Network()

    @model_validator(mode="after")
    def _check_image_is_said(self) -> Self:
        if self.enabled and self.image is None:
            raise ValueError("image is needed where enabled is true")
        return self


class ApiKey(KeyRecord):
    """What the platform knows of a key: a hash of its secret. The key itself has no place in a configuration."""

    model_config = ConfigDict(extra="forbid")
