"""The embedded default: gets the real parts and runs them on one machine. For development only."""

from gpu_platform.process import SentenceError


class DevClusterError(SentenceError):
    """The embedded cluster cannot do what it was asked for."""
