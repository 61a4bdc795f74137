"""What went wrong, in one line that a person at the command line can act on."""

import re

from gpu_platform.kube import KubeError, UnreachableError
from providers.protocol.resource import Observed


class ResourceFailedError(Exception):
    """An operation on a resource that did not come about."""


class NotReadyError(ResourceFailedError):
    """The object exists, but does not do its work in time."""


class IncompleteError(ResourceFailedError):
    """The object exists and Pulumi must remember it, but it did not become ready."""

    def __init__(self, message: str, observed: Observed) -> None:
        super().__init__(message)
        self.observed = observed


def describe(error: KubeError, name: str, server: str) -> str:
    """`name` is the object's, with its kind; or only the kind, where the question was about that as a whole."""
    message = " ".join(error.message.split())
    if isinstance(error, UnreachableError):
        return f"{name}: the API server {server} cannot be reached: {message}"
    return f"{name}: {REPEATED_NAME.sub('', message)} ({error.reason})"


REPEATED_NAME = re.compile(r'^\S+ "[^"]*" is invalid: ')
"""With which the API server begins a refusal; the line has said it already."""
