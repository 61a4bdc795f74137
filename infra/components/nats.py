"""NATS with JetStream: a StatefulSet that asks everybody for a user and TLS, and keeps what it accepted."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Literal, Self

import pulumi
from pydantic import Field, model_validator

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import SYSTEM_NAMESPACE
from gpu_platform.domain.network import DnsPods
from gpu_platform.domain.quantities import canonical_quantity, format_bytes, parse_amount
from gpu_platform.nats.subjects import RESERVED_BYTES
from gpu_platform.settings import Settings
from infra.component import (
    CONTAINER_SECURITY,
    OUR_NAMESPACES,
    POD_SECURITY,
    Component,
    app_labels,
    build_amounts,
    build_config_map,
    build_disruption_budget,
    build_network_policy,
    build_object,
    build_probe,
    build_service,
    build_tcp_ports,
    name_of,
)
from infra.field_types import Amount, Amounts, Image, ObjectName

NAME = "nats"

PEERS = "nats-peers"
"""The headless Service, by which the servers know each other."""

CLIENT_PORT, CLUSTER_PORT, MONITOR_PORT = 4222, 6222, 8222

MEMORY_SHARE = Decimal("0.25")
"""Of a container's memory that messages may take. The platform's streams keep theirs in files; without a limit, the
server takes the memory of the whole node for its own."""

CONFIGURATION_DIRECTORY = "/etc/nats"


STORED_SHARE = Decimal("0.9")
"""Of NATS' volume that JetStream may fill: the file system wants some, and a full one stops every write."""


LEAST_NATS_STORAGE = "10Gi"


LEAST_NATS_MEMORY = "256Mi"
"""Chosen by feel: a server with the platform's streams ran in a container of this size."""


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


def nats_url() -> str:
    return f"tls://{NAME}.{SYSTEM_NAMESPACE}.svc.cluster.local:{CLIENT_PORT}"


def build_nats(nats: Nats, dns: DnsPods) -> tuple[Json, ...]:
    return (
        build_configuration(nats),
        build_service(NAME, NAME, {"client": CLIENT_PORT}, type="ClusterIP"),
        # Peers have to find each other before they are ready: that is what makes them so.
        build_service(
            PEERS,
            NAME,
            {"client": CLIENT_PORT, "cluster": CLUSTER_PORT},
            clusterIP="None",
            publishNotReadyAddresses=True,
        ),
        _network_policy(dns),
        build_disruption_budget(NAME),
        _stateful_set(nats),
    )


def render_configuration(nats: Nats, directory: str = CONFIGURATION_DIRECTORY, data: str = "/data") -> str:
    """The server's configuration. Whom it believes is in a file of its own, of a Secret: `gpu-platform queue keys`."""
    tls = (
        f'{{ cert_file: "{directory}/tls/tls.crt", key_file: "{directory}/tls/tls.key", '
        f'ca_file: "{directory}/tls/ca.crt"'
    )
    lines = [
        "server_name: $POD_NAME",
        f"port: {CLIENT_PORT}",
        f"http_port: {MONITOR_PORT}",
        "lame_duck_duration: 30s",
        "lame_duck_grace_period: 5s",
        f"tls: {tls} }}",
        "jetstream {",
        f'  store_dir: "{data}"',
        f"  max_file_store: {nats.stored_bytes}",
        f"  max_memory_store: {int(parse_amount(nats.resources.memory) * MEMORY_SHARE)}",
        # An acknowledged message survives the power cut of all servers, not only the end of one.
        "  sync_interval: always",
        "}",
    ]
    if nats.replicas > 1:
        routes = ", ".join(f'"nats://{host}:{CLUSTER_PORT}"' for host in peer_hosts(nats))
        lines += [
            "cluster {",
            "  name: gpu-platform",
            f"  port: {CLUSTER_PORT}",
            f"  routes: [{routes}]",
            # Both sides show a certificate of our authority: nobody else can join.
            f"  tls: {tls}, verify: true, timeout: 5 }}",
            "}",
        ]
    return "\n".join([*lines, "include users/users.conf", ""])


def peer_hosts(nats: Nats) -> tuple[str, ...]:
    return tuple(f"{NAME}-{ordinal}.{PEERS}.{SYSTEM_NAMESPACE}.svc.cluster.local" for ordinal in range(nats.replicas))


def build_configuration(nats: Nats) -> Json:
    return build_config_map(NAME, "nats.conf", render_configuration(nats))


def _network_policy(dns: DnsPods) -> Json:
    """The monitor is for the kubelet alone."""
    servers = {"podSelector": {"matchLabels": app_labels(NAME)}}
    return build_network_policy(
        NAME,
        ingress=[
            {"from": [OUR_NAMESPACES], "ports": build_tcp_ports(CLIENT_PORT)},
            {"from": [servers], "ports": build_tcp_ports(CLUSTER_PORT)},
        ],
        egress=[dns.to_rule(), {"to": [servers], "ports": build_tcp_ports(CLUSTER_PORT)}],
    )


def _stateful_set(nats: Nats) -> Json:
    labels = app_labels(NAME)
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": canonical_quantity(nats.storage)}},
        **({"storageClassName": nats.storage_class} if nats.storage_class else {}),
    }
    return build_object(
        "StatefulSet",
        NAME,
        SYSTEM_NAMESPACE,
        labels=labels,
        spec={
            "replicas": nats.replicas,
            "serviceName": PEERS,
            # All at once: a server alone of three is never ready, and would keep the others from coming.
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod(nats)},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        },
    )


def _pod(nats: Nats) -> Json:
    # At most one per node, or a node's end takes the majority with it.
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": app_labels(NAME)}}
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 60,
        "securityContext": POD_SECURITY,
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "containers": [_container(nats)],
        "volumes": [
            {"name": "configuration", "configMap": {"name": build_configuration(nats)["metadata"]["name"]}},
            {"name": "users", "secret": {"secretName": nats.users_secret}},
            {"name": "tls", "secret": {"secretName": nats.tls_secret}},
        ],
    }


def _container(nats: Nats) -> Json:
    amounts = build_amounts(nats.resources)
    ports = {"client": CLIENT_PORT, "cluster": CLUSTER_PORT, "monitor": MONITOR_PORT}
    return {
        "name": NAME,
        "image": nats.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["nats-server", "--config", f"{CONFIGURATION_DIRECTORY}/nats.conf"],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        ],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()],
        "livenessProbe": build_probe(_liveness_path(nats), "monitor", period=10, timeout=5, failures=3),
        "readinessProbe": build_probe("/healthz?js-server-only=true", "monitor", period=10, timeout=5, failures=3),
        # It reads everything that it stored before it answers.
        "startupProbe": build_probe("/healthz", "monitor", period=10, timeout=5, failures=90),
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "configuration", "mountPath": f"{CONFIGURATION_DIRECTORY}/nats.conf", "subPath": "nats.conf"},
            {"name": "users", "mountPath": f"{CONFIGURATION_DIRECTORY}/users", "readOnly": True},
            {"name": "tls", "mountPath": f"{CONFIGURATION_DIRECTORY}/tls", "readOnly": True},
            {"name": "data", "mountPath": "/data"},
        ],
    }


def _liveness_path(nats: Nats) -> str:
    """A write error, as of a full disk, stays with a server until it is restarted. One of several switches JetStream
    off then. A single one goes on without the stream, and says so only where every stream is asked about."""
    return "/healthz?js-enabled-only=true" if nats.replicas > 1 else "/healthz"


@dataclass(frozen=True)
class NatsServersArgs:
    settings: Nats
    dns: DnsPods


class NatsServers(Component):
    """Its URL is known once the servers are."""

    def __init__(self, name: str, args: NatsServersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("NatsServers", name, opts)
        # Services, policy and budget before the pods; the builder gives them in that order.
        *before, servers = build_nats(args.settings, args.dns)
        declared = [self.declare(body) for body in before]
        stateful_set = self.declare(servers, after=declared)
        self.url = name_of(stateful_set).apply(lambda _: nats_url())
        self.register_outputs({"url": self.url})
