"""Hosts, by name or by address, and the peers of network policies."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from gpu_platform.domain.json_text import Json

LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"

DOMAIN = re.compile(rf"{LABEL}(\.{LABEL})*")
"""One or more labels, as DNS and the names of most Kubernetes objects have them."""


def is_loopback(host: str) -> bool:
    """Whether it is this very machine, as far as its name tells."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def build_peer(namespace: str, labels: Mapping[str, str]) -> Json:
    """The pods with these labels in the namespace; without labels, all of them."""
    peer: Json = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    return {**peer, "podSelector": {"matchLabels": dict(labels)}} if labels else peer


@dataclass(frozen=True)
class DnsPods:
    """The pods that answer for names. A unit reaches them, and nothing else in their namespace."""

    namespace: str
    labels: tuple[tuple[str, str], ...]
    port: int

    def to_rule(self) -> Json:
        ports = [{"protocol": protocol, "port": self.port} for protocol in ("UDP", "TCP")]
        return {"to": [build_peer(self.namespace, dict(self.labels))], "ports": ports}


KUBE_DNS = DnsPods("kube-system", (("k8s-app", "kube-dns"),), 53)
"""CoreDNS, as nearly every cluster has it."""
