"""Who may call our own pods, and whom they may call. Pure.

| pods         | in                                     | out                                                  |
| ------------ | -------------------------------------- | ---------------------------------------------------- |
| all          | nothing                                | nothing                                              |
| API          | its public port, from anywhere;        | DNS, `egressPorts`, NATS, tenants' pods              |
|              | metrics, from `metricsNamespaces`      |                                                      |
| reconciler   | metrics, from `metricsNamespaces`      | DNS, `egressPorts`, NATS                             |
| stack worker | metrics, from `metricsNamespaces`      | DNS, `egressPorts`                                   |
| NATS         | clients of the platform, other servers | DNS, other servers                                   |

The kubelet's probes need no hole: Kubernetes always lets a node reach its own pods. `egressPorts` are open to every
address, because no policy can say for every cluster which address its API server has.
"""

from urllib.parse import urlsplit

from gpu_platform.domain.names import SYSTEM_NAMESPACE
from gpu_platform.domain.network import DnsPods, build_peer
from infra.objects.metadata import LABEL_PART_OF, PLATFORM, Json, app_labels, build_metadata
from infra.sections import Nats, Network

NATS_PORT = 4222
OUR_NAMESPACES: Json = {"namespaceSelector": {"matchLabels": {LABEL_PART_OF: PLATFORM}}}


def build_policy(app: str, *, ingress: list[Json], egress: list[Json]) -> Json:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": build_metadata(app, SYSTEM_NAMESPACE),
        "spec": {
            "podSelector": {"matchLabels": app_labels(app)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    }


def build_api_policy(app: str, public_port: int, metrics_port: int, network: Network, nats: Nats, dns: DnsPods) -> Json:
    tenants: Json = {"to": [OUR_NAMESPACES]}
    return build_policy(
        app,
        ingress=[{"ports": _tcp(public_port)}, *_build_scrapes(metrics_port, network)],
        egress=[*_build_basics(network, dns), *_build_nats(nats), tenants],
    )


def build_nats_policy(app: str, client_port: int, cluster_port: int, dns: DnsPods) -> Json:
    """The monitor is for the kubelet alone."""
    servers = {"podSelector": {"matchLabels": app_labels(app)}}
    return build_policy(
        app,
        ingress=[
            {"from": [OUR_NAMESPACES], "ports": _tcp(client_port)},
            {"from": [servers], "ports": _tcp(cluster_port)},
        ],
        egress=[dns.to_rule(), {"to": [servers], "ports": _tcp(cluster_port)}],
    )


def build_metrics_policy(app: str, port: int, network: Network, dns: DnsPods, nats: Nats | None = None) -> Json:
    """Of a process that nobody calls but Prometheus; with `nats`, it is a client of it."""
    return build_policy(
        app,
        ingress=_build_scrapes(port, network),
        egress=[*_build_basics(network, dns), *(_build_nats(nats) if nats is not None else ())],
    )


def _build_scrapes(port: int, network: Network) -> list[Json]:
    """Without namespaces there is no rule at all: one with an empty `from` would let everything in."""
    scrapers = [build_peer(namespace, {}) for namespace in network.metrics_namespaces]
    return [{"from": scrapers, "ports": _tcp(port)}] if scrapers else []


def _build_basics(network: Network, dns: DnsPods) -> list[Json]:
    return [dns.to_rule(), {"ports": _tcp(*network.egress_ports)}]


def _build_nats(nats: Nats) -> list[Json]:
    if nats.enabled:
        return [{"to": [build_peer(SYSTEM_NAMESPACE, app_labels("nats"))], "ports": _tcp(NATS_PORT)}]
    return [{"ports": _tcp(urlsplit(nats.url).port or NATS_PORT)}] if nats.url else []


def _tcp(*ports: int) -> list[Json]:
    return [{"protocol": "TCP", "port": port} for port in ports]
