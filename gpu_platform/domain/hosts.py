"""Hosts, by name or by address."""

import re
from ipaddress import ip_address

LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
DOMAIN = re.compile(rf"{LABEL}(\.{LABEL})*")
"""One or more labels, as DNS and the names of most Kubernetes objects have them."""


def is_loopback(host: str) -> bool:
    """Whether it is this very machine, as far as its name tells."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
