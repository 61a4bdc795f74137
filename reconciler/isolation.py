"""What keeps the pods of tenants within their bounds: Linux capabilities, resources of the containers beside a tenant's
own, and the rules of network policies. Units and storages share it. Pure.

Of root's capabilities inside a tenant's container everything is dropped, and a short list is added back, so that a
capability that a runtime or a later kernel grants by default reaches nobody. Without `NET_RAW` no container can forge
packets or read its neighbours' by ARP.

| capability         | what images need it for                                                |
| ------------------ | ---------------------------------------------------------------------- |
| `AUDIT_WRITE`      | PAM: logins of `sshd`, `su` and `sudo`                                 |
| `CHOWN`            | package managers, entrypoints that hand a directory to their user      |
| `DAC_OVERRIDE`     | root reads and writes files of other users                             |
| `FOWNER`           | `chmod` of files of other users                                        |
| `FSETID`           | set-group-ID directories keep their bit                                |
| `NET_BIND_SERVICE` | ports below 1024                                                       |
| `SETGID`, `SETUID` | entrypoints that begin as root and go on as a user                     |
| `SYS_CHROOT`       | the privilege separation of `sshd`                                     |

All of them are in the Pod Security profile `baseline`; a `restricted` namespace adds none back.
"""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address, ip_network

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.network import DnsPods, build_peer

ADDED_CAPABILITIES = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "NET_BIND_SERVICE",
    "SETGID",
    "SETUID",
    "SYS_CHROOT",
)

EPHEMERAL_STORAGE = "ephemeral-storage"
"""A container's own files and logs, and the pod's volumes on the node's disk. A pod that has more is evicted."""

HELPER_DISK = "1Gi"
"""Logs, and little else."""

JOB_DISK = "10Gi"
"""Of a container that prepares a storage: what it unpacks on the way to the storage."""

UNITS_OF_TENANT: Json = {"podSelector": {"matchLabels": {names.LABEL_NAME: names.NAME_VALUE}}}
"""The pods of all units in the namespace, which is one tenant's."""


NOBODY = 65_534
SECCOMP: Json = {"seccompProfile": {"type": "RuntimeDefault"}}


def build_security_context(added: Sequence[str] = (), **fields: bool | int) -> Json:
    """Returns the security context of a container with these capabilities."""
    capabilities = {"drop": ["ALL"], **({"add": list(added)} if added else {})}
    return {"allowPrivilegeEscalation": False, **SECCOMP, "capabilities": capabilities, **fields}


def build_helper_security_context() -> Json:
    """Returns that of a container of the platform beside a tenant's own: it needs no rights at all."""
    return build_security_context(readOnlyRootFilesystem=True, runAsNonRoot=True, runAsUser=NOBODY, runAsGroup=NOBODY)


def build_helper_resources(*, cpu: str, memory: str) -> Json:
    """Nothing is asked of the scheduler: the place that the stock held has to be enough."""
    limits = {"cpu": cpu, "memory": memory, EPHEMERAL_STORAGE: HELPER_DISK}
    return {"requests": dict.fromkeys(limits, "0"), "limits": limits}


def build_disk_limit(limit: str) -> Json:
    """For a container that gets its CPU and memory from the namespace's LimitRange."""
    return {"requests": {EPHEMERAL_STORAGE: "0"}, "limits": {EPHEMERAL_STORAGE: limit}}


def build_empty_dir(limit: str) -> Json:
    return {"emptyDir": {"sizeLimit": limit}}


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
