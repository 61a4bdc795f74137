"""What went wrong, in one line that a person at the command line can act on."""

import re

from gpu_platform.adapters.kube import KubeError, UnreachableError
from providers.kubernetes.type_tokens import ObjectType


class ResourceFailedError(Exception):
    """An operation on a resource that did not come about."""


class NotReadyError(ResourceFailedError):
    """The object exists, but does not do its work in time."""


def describe(error: KubeError, kind: ObjectType, object_id: str, server: str) -> str:
    """`object_id` is empty where the question was about the kind as a whole."""
    name = f"{kind.kind} {object_id}".strip()
    message = " ".join(error.message.split())
    if isinstance(error, UnreachableError):
        return f"{name}: the API server {server} cannot be reached: {message}"
    return f"{name}: {REPEATED_NAME.sub('', message)} ({error.reason})"


REPEATED_NAME = re.compile(r'^\S+ "[^"]*" is invalid: ')
"""With which the API server begins a refusal; the line has said it already."""
