"""Where a call is forwarded to: which of an object's pods answers it, and what is left of the caller's path.

The resource that a call belongs to finds its `Target`; `forwarding` uses it and asks no more.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import unquote_to_bytes

from gpu_platform.domain import names
from gpu_platform.domain.conditions import is_true
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of


@dataclass(frozen=True)
class Target:
    what: str
    """For sentences: `the unit 'web'`."""

    address: str
    """An IP address, of a pod of the very object that was asked for."""

    port: int
    authority: str
    """The `Host` that a caller inside the cluster would send."""

    is_tls: bool = False
    """Its certificate is not looked at: what makes it the right one is that the address is its pod's."""

    is_public: bool = False
    """All callers may read its answers without a key."""


@dataclass(frozen=True)
class Simulated:
    """The pod is on a simulated node of the embedded cluster: its address is invented and never dialled."""

    node: str

    @property
    def why(self) -> str:
        """For sentences that begin with the unit or the storage."""
        return (
            f"is on the simulated node {self.node!r}, where no process runs; "
            "a spec of the host node, such as host.1, runs the command"
        )


def plan_address(pods: Iterable[Json], *, development_addresses: bool) -> str | Simulated | None:
    """The newest of the pods that are Ready, have an address and are not being deleted answers.

    On the embedded cluster (`development_addresses`) every address in a pod's status is invented: nothing but loopback
    is ever dialled there.

    | newest pod               | development addresses | answer                                |
    | ------------------------ | --------------------- | ------------------------------------- |
    | none                     | any                   | none                                  |
    | any                      | off                   | the address in its status             |
    | names a loopback address | on                    | that one: the host node listens there |
    | any other                | on                    | simulated: no process runs            |
    """
    ready = [
        pod
        for pod in pods
        if is_true(pod, "Ready") and _pod_address(pod) and "deletionTimestamp" not in pod["metadata"]
    ]
    newest = max(ready, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]), default=None)
    if newest is None:
        return None
    if not development_addresses:
        return _pod_address(newest)
    real = annotations_of(newest).get(names.ANNOTATION_HOST_ADDRESS, "")
    return real if _is_loopback(real) else Simulated(str(newest.get("spec", {}).get("nodeName") or "unknown"))


def split_path(raw_path: bytes, prefix: str) -> tuple[str, bytes] | None:
    """The caller's spelling of our prefix, and the rest, byte for byte as it came.

    | raw path, for the prefix `/a/b`    | answer                         |
    | ---------------------------------- | ------------------------------ |
    | `/a/b/`, `/a/b/c?d`                | `/a/b` and the rest            |
    | `/a/%62/c%2Fd/../e`                | `/a/%62` and `/c%2Fd/../e`     |
    | `/a%2Fb/c`: a slash of ours hidden | none: no such path             |
    | anything else                      | none                           |
    """
    count = prefix.count("/") + 1
    parts = raw_path.split(b"/", count)
    if len(parts) <= count:
        return None
    own = b"/".join(parts[:count])
    if any(b"%2f" in part.lower() for part in parts[:count]) or unquote_to_bytes(own) != prefix.encode():
        return None
    return own.decode("ascii"), b"/" + parts[count]


def _pod_address(pod: Json) -> str | None:
    return pod.get("status", {}).get("podIP") or None


def _is_loopback(text: str) -> bool:
    try:
        return ip_address(text).is_loopback
    except ValueError:
        return False
