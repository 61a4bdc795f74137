"""The rules of network policies that units and storages share. Pure."""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address, ip_network
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.network import DnsPods, build_peer

Json = dict[str, Any]

UNITS_OF_TENANT: Json = {"podSelector": {"matchLabels": {names.LABEL_NAME: names.NAME_VALUE}}}
"""The pods of all units in the namespace, which is one tenant's."""


def with_servers(blocked: tuple[str, ...], servers: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """The networks, and those of the servers' addresses that are in none of them, each as a network of its own."""
    networks = [ip_network(cidr) for cidr in blocked]
    addresses = [ip_address(address) for address in sorted({address for address, _ in servers})]
    outside = [each for each in addresses if not any(each in network for network in networks)]
    return (*blocked, *(f"{each}/{each.max_prefixlen}" for each in outside))


def build_egress(blocked: tuple[str, ...], dns: DnsPods) -> list[Json]:
    """Names and the internet, but none of these networks."""
    four = [cidr for cidr in blocked if ":" not in cidr]
    six = [cidr for cidr in blocked if ":" in cidr]
    return [
        dns.to_rule(),
        {"to": [{"ipBlock": _block("0.0.0.0/0", four)}, {"ipBlock": _block("::/0", six)}]},
    ]


def build_admissions(ports: Sequence[tuple[str, int]], callers: Sequence[Json] = ()) -> list[Json]:
    """The API, which passes calls on, and these callers, on these ports."""
    allowed = [{"protocol": protocol, "port": port} for protocol, port in ports]
    proxy = build_peer(names.SYSTEM_NAMESPACE, {names.LABEL_NAME: names.API_NAME_VALUE})
    return [{"from": [proxy, *callers], "ports": allowed}]


def _block(cidr: str, excepted: list[str]) -> Json:
    return {"cidr": cidr, **({"except": excepted} if excepted else {})}
