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

    is_public: bool = False
    """All callers may read its answers without a key."""


@dataclass(frozen=True)
class NotReady:
    """There is no process that could take the call, and why."""

    message: str


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
