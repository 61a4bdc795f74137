"""Our own processes as a stack's settings have them, and what sets each apart from the others.

Their settings are their own models, narrowed to what the manifests promise: ports that probes and Services ask, and
the Lease that the Roles name, cannot be configured in a cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import yaml
from pydantic import Field, model_validator

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.rbac import API_ACCOUNT, RECONCILER_ACCOUNT, STACK_WORKER_ACCOUNT
from gpu_platform.settings import Settings, split_address
from infra.component import app_labels
from infra.components.nats import NAME, Nats, nats_url
from infra.field_types import Amounts, DnsLabel, Image, ObjectName, StrictToleration
from platform_api.settings import ApiSettings
from reconciler.rbac import LEASE
from reconciler.settings import ReconcilerSettings, find_route_problem
from stacks.settings import StackWorkerSettings

API, RECONCILER, STACK_WORKER = API_ACCOUNT, RECONCILER_ACCOUNT, STACK_WORKER_ACCOUNT

# On all of the pod's addresses: the kubelet and the Service come from outside.
API_ADDRESS: Final = "0.0.0.0:8080"

API_METRICS_ADDRESS: Final = "0.0.0.0:9405"

API_PROBE_ADDRESS: Final = "0.0.0.0:9406"

METRICS_ADDRESS: Final = "0.0.0.0:9401"

PROBE_ADDRESS: Final = "0.0.0.0:9402"

STACK_METRICS_ADDRESS: Final = "0.0.0.0:9403"

STACK_PROBE_ADDRESS: Final = "0.0.0.0:9404"

PASSPHRASE_DIRECTORY: Final = "/etc/gpu-platform-passphrase"  # noqa: S105 - where it lies

CREDENTIALS_DIRECTORY = "/etc/gpu-platform-nats"

AUTHORITY_DIRECTORY = "/etc/gpu-platform-nats-ca"

ENOUGH_REPLICAS = 3
"""Of a stream. More servers share the streams, and do not each have them all."""


API_SERVICE_PORT = 80
HTTP = "http"
PROBES = "probes"

METRICS = "metrics"
"""Names of container ports, the same for every process. The Service offers its metrics under the same name."""


GRACE_SECONDS = 30
"""The reconciler gives its passes 10 s and the API its requests 5 s; then the lease is given back."""


STACK_GRACE_SECONDS = 60
"""A worker gives Pulumi 15 s to end by itself, and as long again to save what it has done."""


Replicas = Annotated[int, Field(ge=1, le=100)]

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


@dataclass(frozen=True)
class QueueClient:
    settings: dict[str, Any] = field(default_factory=dict)
    secret: str | None = None
    authority_secret: str | None = None

    def build_volumes(self) -> list[Json]:
        # Readable by the pod's own group: the process is not root. Optional: units and stock are served without NATS.
        volumes: list[Json] = []
        if self.secret:
            secret: Json = {"secretName": self.secret, "defaultMode": 0o440, "optional": True}
            volumes.append({"name": "nats", "secret": secret})
        if self.authority_secret:
            # Of our own servers, this Secret has their key too.
            items = [{"key": "ca.crt", "path": "ca.crt"}]
            secret = {"secretName": self.authority_secret, "items": items, "defaultMode": 0o440, "optional": True}
            volumes.append({"name": "nats-ca", "secret": secret})
        return volumes

    def build_mounts(self) -> list[Json]:
        # Whole directories, not single files of them: those would stay as they were when the Secret is renewed.
        directories = {"nats": CREDENTIALS_DIRECTORY, "nats-ca": AUTHORITY_DIRECTORY}
        return [
            {"name": volume["name"], "mountPath": directories[volume["name"]], "readOnly": True}
            for volume in self.build_volumes()
        ]


NO_CLIENT = QueueClient()


def build_api_client(nats: Nats) -> QueueClient:
    url = _url_of(nats)
    if url is None:
        return NO_CLIENT
    return QueueClient(_common(nats, url), nats.api_secret, _authority_of(nats))


def build_reconciler_client(nats: Nats, image: str | None) -> QueueClient:
    """It also makes the workers' pods: their sidecar is in the platform's own image."""
    url = _url_of(nats)
    if url is None:
        return NO_CLIENT
    settings = {
        **_common(nats, url),
        "natsSigningKey": f"{CREDENTIALS_DIRECTORY}/signing.key",
        "natsSystemCredentials": f"{CREDENTIALS_DIRECTORY}/system.creds",
        "natsReplicas": min(nats.replicas, ENOUGH_REPLICAS),
        **({"natsEgressLabels": [f"{key}={value}" for key, value in app_labels(NAME).items()]} if nats.enabled else {}),
        **({"sidecarImage": image} if image else {}),
    }
    return QueueClient(settings, nats.reconciler_secret, _authority_of(nats))


def _common(nats: Nats, url: str) -> dict[str, Any]:
    authority = {"natsCA": f"{AUTHORITY_DIRECTORY}/ca.crt"} if _authority_of(nats) else {}
    return {"natsURL": url, "natsCredentials": f"{CREDENTIALS_DIRECTORY}/nats.creds", **authority}


def _url_of(nats: Nats) -> str | None:
    return nats_url() if nats.enabled else nats.url


def _authority_of(nats: Nats) -> str | None:
    return nats.ca_secret or (nats.tls_secret if nats.enabled else None)


@dataclass(frozen=True)
class Process:
    """What sets one of our processes apart from the others."""

    name: str
    subcommand: str
    """Of `gpu-platform`."""

    settings: str
    """The content of its settings file."""

    replicas: int
    resources: Amounts
    ports: dict[str, int]
    """Of the container; every process has `probes` and `metrics`."""

    offered_ports: dict[str, int]
    """Those of its Service, by the name of the container's port."""

    options: tuple[str, ...] = ()
    """Of the subcommand, beside its settings file."""

    passphrase_secret: str | None = None
    environment_secret: str | None = None
    queue: QueueClient = NO_CLIENT
    grace_seconds: int = GRACE_SECONDS
    scratch: str = "64Mi"


def build_processes(workloads: Workloads, nats: Nats) -> tuple[Process, ...]:
    api_client, reconciler_client = build_api_client(nats), build_reconciler_client(nats, workloads.image)
    api = Process(
        name=API,
        subcommand="api",
        settings=render_settings(workloads.api.settings, api_client.settings),
        replicas=workloads.api.replicas,
        resources=workloads.api.resources,
        ports={HTTP: port_of(API_ADDRESS), **_own_ports(API_METRICS_ADDRESS, API_PROBE_ADDRESS)},
        offered_ports={HTTP: API_SERVICE_PORT, METRICS: port_of(API_METRICS_ADDRESS)},
        # The stack worker is a Deployment of its own here.
        options=("--no-stack-worker",),
        queue=api_client,
    )
    reconciler = Process(
        name=RECONCILER,
        subcommand="reconciler",
        settings=render_settings(workloads.reconciler.settings, {**_of_image(workloads), **reconciler_client.settings}),
        replicas=workloads.reconciler.replicas,
        resources=workloads.reconciler.resources,
        ports=_own_ports(METRICS_ADDRESS, PROBE_ADDRESS),
        offered_ports={METRICS: port_of(METRICS_ADDRESS)},
        queue=reconciler_client,
    )
    return (api, reconciler, *([_stack_worker(workloads.stack_worker)] if workloads.stack_worker.enabled else []))


def _own_ports(metrics_address: str, probe_address: str) -> dict[str, int]:
    return {METRICS: port_of(metrics_address), PROBES: port_of(probe_address)}


def _of_image(workloads: Workloads) -> dict[str, str]:
    """The file browser of storages is in the platform's own image."""
    return {"accessorImage": workloads.image} if workloads.image else {}


def _stack_worker(wanted: StackWorker) -> Process:
    return Process(
        name=STACK_WORKER,
        subcommand="stack-worker",
        settings=render_settings(wanted.settings),
        replicas=wanted.replicas,
        resources=wanted.resources,
        ports=_own_ports(STACK_METRICS_ADDRESS, STACK_PROBE_ADDRESS),
        offered_ports={METRICS: port_of(STACK_METRICS_ADDRESS)},
        passphrase_secret=wanted.passphrase_secret,
        environment_secret=wanted.environment_secret,
        grace_seconds=STACK_GRACE_SECONDS,
        # Work directories and Pulumi's logs.
        scratch="1Gi",
    )
