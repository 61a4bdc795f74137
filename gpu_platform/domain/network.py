"""The peers of network policies. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


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
