"""What network policies are made of: peers, and the rules that units and storages share. Pure."""

from collections.abc import Mapping
from typing import Any

from gpu_platform.domain import names

Json = dict[str, Any]


def build_peer(namespace: str, labels: Mapping[str, str]) -> Json:
    """The pods with these labels in the namespace; without labels, all of them."""
    peer: Json = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    return {**peer, "podSelector": {"matchLabels": dict(labels)}} if labels else peer


def build_egress(blocked: tuple[str, ...]) -> list[Json]:
    """Names and the internet, but none of these networks."""
    four = [cidr for cidr in blocked if ":" not in cidr]
    six = [cidr for cidr in blocked if ":" in cidr]
    return [
        {
            "to": [build_peer("kube-system", {})],
            "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
        },
        {"to": [{"ipBlock": _block("0.0.0.0/0", four)}, {"ipBlock": _block("::/0", six)}]},
    ]


def build_admissions(ports: list[tuple[str, int]]) -> list[Json]:
    """The API, which passes calls on, on these ports."""
    allowed = [{"protocol": protocol, "port": port} for protocol, port in ports]
    proxy = build_peer(names.SYSTEM_NAMESPACE, {names.LABEL_NAME: names.API_NAME_VALUE})
    return [{"from": [proxy], "ports": allowed}]


def _block(cidr: str, excepted: list[str]) -> Json:
    return {"cidr": cidr, **({"except": excepted} if excepted else {})}
