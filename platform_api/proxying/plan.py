"""Which of an object's pods answers a call, and what is left of the caller's path."""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote_to_bytes

from gpu_platform.domain import names
from gpu_platform.domain.conditions import is_true
from gpu_platform.domain.metadata import annotations_of

Json = dict[str, Any]


def plan_address(pods: Iterable[Json], *, development_addresses: bool) -> str | None:
    """
    | pods that are Ready, have an address and are not on their way out | address                           |
    | ------------------------------------------------------------------ | --------------------------------- |
    | none                                                               | none                              |
    | some                                                               | that of the newest                |
    | some; the newest names a loopback address, and that is allowed     | that one: where it really listens |
    """
    ready = [pod for pod in pods if is_true(pod, "Ready") and _pod_address(pod) and not _is_leaving(pod)]
    newest = max(ready, key=_order, default=None)
    if newest is None:
        return None
    real = annotations_of(newest).get(names.ANNOTATION_HOST_ADDRESS)
    if development_addresses and real and _is_loopback(real):
        return real
    return _pod_address(newest)


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


def _is_leaving(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _order(pod: Json) -> tuple[str, str]:
    return pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]
