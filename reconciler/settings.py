"""Settings of the reconciler. `config/local/reconciler.yaml` shows every key with its default."""

import re
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gpu_platform.domain.names import SYSTEM_NAMESPACE
from gpu_platform.domain.network import DOMAIN, LABEL, DnsPods
from gpu_platform.settings import Address, Settings, SettingsError, load_settings

ENVIRONMENT_PREFIX = "GPU_PLATFORM_RECONCILER_"

ControllerName = Literal["units", "storages", "stock", "operations", "orphans", "drift", "functions"]

PRIVATE_RANGES = (
    *("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"),
    *("fc00::/7", "fe80::/10"),
)
"""Private networks, carrier-grade NAT, and link-local with the clouds' metadata services; in IPv6, too: a cluster with
both has pods, nodes and metadata services there."""


def _check_network(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise ValueError(f"should be a network such as 10.0.0.0/8 ({error})") from error


Network = Annotated[str, AfterValidator(_check_network)]
Text = Annotated[str, Field(min_length=1)]
QUALIFIED = rf"({LABEL}(\.{LABEL})*/)?[A-Za-z0-9]([A-Za-z0-9._-]{{0,61}}[A-Za-z0-9])?"
"""The name of a label or an annotation."""

Label = Annotated[str, Field(pattern=rf"^{QUALIFIED}=[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")]
"""`name=value`."""

TAINT = re.compile(
    r"(?P<key>[A-Za-z0-9][A-Za-z0-9._/-]*)(=(?P<value>[A-Za-z0-9._-]*))?"
    r"(:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute))?"
)


def _check_taint(text: str) -> str:
    if TAINT.fullmatch(text) is None:
        raise ValueError(f"should be a taint such as key, key=value or key=value:NoSchedule, not {text!r}")
    return text


DOMAIN_LIMIT = 190
"""What is left of a host's 253 letters by a unit's name in front."""


def _check_domain(text: str) -> str:
    if len(text) > DOMAIN_LIMIT or DOMAIN.fullmatch(text) is None:
        raise ValueError(f"should be a domain such as units.example.com, not {text!r}")
    return text


def _check_gateway(text: str) -> str:
    if re.fullmatch(rf"{LABEL}/{DOMAIN.pattern}(/{DOMAIN.pattern})?", text) is None:
        raise ValueError("should be namespace/name of a Gateway, or namespace/name/listener")
    return text


def _check_annotation(text: str) -> str:
    if re.match(rf"{QUALIFIED}=", text) is None:
        raise ValueError("should be name=value, or domain/name=value")
    return text


Domain = Annotated[str, AfterValidator(_check_domain)]
NamespaceName = Annotated[str, Field(pattern=rf"^{LABEL}$")]
ObjectName = Annotated[str, Field(pattern=rf"^{DOMAIN.pattern}$", max_length=253)]
GatewayName = Annotated[str, AfterValidator(_check_gateway)]
Annotation = Annotated[str, AfterValidator(_check_annotation)]
Taint = Annotated[str, AfterValidator(_check_taint)]


class ReconcilerSettings(Settings):
    leader_elect: bool = True
    lease_namespace: Text = SYSTEM_NAMESPACE
    lease_name: Text = "gpu-platform-reconciler"
    lease_seconds: Annotated[int, Field(ge=3)] = 15
    metrics_address: Address = "127.0.0.1:9401"
    probe_address: Address = "127.0.0.1:9402"
    resync_seconds: Annotated[int, Field(ge=10)] = 300
    watch_seconds: Annotated[int, Field(ge=1)] = 30
    operation_takeover_seconds: Annotated[int, Field(ge=1)] = 15
    claim_limit_seconds: Annotated[int, Field(ge=1)] = 60
    orphan_limit_seconds: Annotated[int, Field(ge=1)] = 30
    queue_grace_seconds: Annotated[int, Field(ge=1)] = 30
    controllers: tuple[ControllerName, ...] = (
        *("units", "storages", "stock", "operations", "orphans", "drift", "functions"),
    )
    workers: Annotated[int, Field(ge=1, le=256)] = 8
    blocked_egress_cidrs: Annotated[tuple[Network, ...], Field(alias="blockedEgressCIDRs")] = PRIVATE_RANGES
    dns_namespace: NamespaceName = "kube-system"
    dns_labels: Annotated[tuple[Label, ...], Field(min_length=1)] = ("k8s-app=kube-dns",)
    dns_port: Annotated[int, Field(ge=1, le=65_535)] = 53
    placeholder_image: Text = "busybox:1.36"
    ssh_server_image: Text = "lscr.io/linuxserver/openssh-server:10.2_p1-r0-ls220"
    frp_client_image: Text = "docker.io/fatedier/frpc:v0.68.0"
    ssh_server_cidrs: Annotated[tuple[Network, ...], Field(alias="sshServerCIDRs")] = ()
    route_kind: Literal["Ingress", "HTTPRoute"] | None = None
    route_domain: Domain | None = None
    route_scheme: Literal["http", "https"] = "https"
    route_class: ObjectName | None = None
    route_gateway: GatewayName | None = None
    route_annotations: tuple[Annotation, ...] = ()
    route_from_namespace: NamespaceName | None = None
    route_from_labels: tuple[Label, ...] = ()
    nats_url: Annotated[str | None, Field(alias="natsURL", min_length=1)] = None
    nats_credentials: Path | None = None
    nats_ca: Annotated[Path | None, Field(alias="natsCA")] = None
    nats_signing_key: Path | None = None
    nats_system_credentials: Path | None = None
    nats_replicas: Annotated[int, Field(ge=1, le=5)] = 1
    nats_workers_url: Annotated[str | None, Field(alias="natsWorkersURL", min_length=1)] = None
    nats_egress_namespace: Text | None = None
    nats_egress_labels: tuple[Label, ...] = ()
    nats_egress_cidr: Annotated[Network | None, Field(alias="natsEgressCIDR")] = None
    result_retention_seconds: Annotated[int, Field(ge=1)] = 24 * 3600
    sidecar_image: Text = "gpu-platform:latest"
    sidecar_command: Annotated[tuple[Text, ...], Field(min_length=1)] = ("python", "-m", "serverless.sidecar")
    worker_grace_seconds: Annotated[int, Field(ge=1, le=3_600)] = 120
    storage_class: Text | None = None
    storage_node_selector: tuple[Label, ...] = ()
    storage_tolerations: tuple[Taint, ...] = ()
    copy_image: Text = "busybox:1.36"
    accessor_image: Text = "gpu-platform:latest"
    accessor_command: Annotated[tuple[Text, ...], Field(min_length=1)] = (
        *("python", "-m", "gpu_platform.file_browser", "$(POD_IP)", "5000", "/data"),
    )
    kubeconfig: Path | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def dns_pods(self) -> DnsPods:
        labels = (label.partition("=") for label in self.dns_labels)
        return DnsPods(self.dns_namespace, tuple((name, value) for name, _, value in labels), self.dns_port)


def load_reconciler_settings(file: Path | None, environment: Mapping[str, str]) -> ReconcilerSettings:
    settings = load_settings(ReconcilerSettings, file, environment, ENVIRONMENT_PREFIX)
    if problem := find_route_problem(settings) or _find_queue_problem(settings):
        raise SettingsError(problem)
    return settings


def find_route_problem(settings: ReconcilerSettings) -> str | None:
    """Which of the settings of routes do not go together."""
    if settings.route_kind is None:
        said = _find_said(settings, "route_")
        return f"{said} is set, but routeKind is not: say Ingress or HTTPRoute" if said else None
    if settings.route_domain is None:
        return "routeKind is set, but routeDomain is not: say below which domain the units' hosts are"
    if settings.route_from_namespace is None:
        return "routeKind is set, but routeFromNamespace is not: say whose pods bring the calls to the units"
    if settings.route_kind == "Ingress" and settings.route_class is None:
        return "routeKind is Ingress, but routeClass is not set: say which ingress class takes them up"
    if settings.route_kind == "HTTPRoute" and settings.route_gateway is None:
        return "routeKind is HTTPRoute, but routeGateway is not set: say which Gateway, as namespace/name"
    if settings.route_kind == "HTTPRoute" and settings.route_class is not None:
        return "routeClass is set, but routeKind is HTTPRoute: only an Ingress has a class"
    if settings.route_kind == "Ingress" and settings.route_gateway is not None:
        return "routeGateway is set, but routeKind is Ingress: only an HTTPRoute has a gateway"
    return None


def _find_queue_problem(settings: ReconcilerSettings) -> str | None:
    if settings.nats_url is None:
        said = _find_said(settings, "nats_")
        return f"{said} is set, but natsURL is not: say where NATS is" if said else None
    if settings.nats_egress_labels and settings.nats_egress_cidr:
        return "natsEgressLabels and natsEgressCIDR are both set: NATS is behind pods or in a network, say one of them"
    if settings.nats_signing_key and not settings.nats_credentials:
        return "natsSigningKey is set, but natsCredentials is not: where workers need some, so do we"
    if "functions" in settings.controllers and settings.nats_credentials and not settings.nats_signing_key:
        return "natsCredentials is set, but natsSigningKey is not: the workers' credentials are made with it"
    return None


def _find_said(settings: ReconcilerSettings, prefix: str) -> str | None:
    """The first key with this prefix that is set. Those with a default of their own are always."""
    fields = ReconcilerSettings.model_fields.items()
    keys = (
        info.alias for name, info in fields if name.startswith(prefix) and not info.default and getattr(settings, name)
    )
    return next(keys, None)
