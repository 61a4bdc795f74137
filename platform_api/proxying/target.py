"""Where a call is passed on to. Found by the resource that it belongs to, used by `forwarding`, which asks no more."""

from dataclasses import dataclass


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


@dataclass(frozen=True)
class NotReady:
    """There is nobody to pass a call on to just now, and why."""

    message: str
