"""Hosts, by name or by address."""

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether it is this very machine, as far as its name tells."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
