"""Kubernetes over `kubernetes.aio`: JSON in, JSON out, a time limit on every call, errors of our own."""

from gpu_platform.kube.client import KubeClient, PatchType
from gpu_platform.kube.connection import NoConnectionError, open_client
from gpu_platform.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    GoneError,
    KubeError,
    NotFoundError,
    QuotaBusyError,
    UnreachableError,
)
from gpu_platform.kube.informer import WatchEvent, list_and_watch
from gpu_platform.kube.paths import ResourcePath

__all__ = [
    "AlreadyExistsError",
    "ConflictError",
    "GoneError",
    "KubeClient",
    "KubeError",
    "NoConnectionError",
    "NotFoundError",
    "PatchType",
    "QuotaBusyError",
    "ResourcePath",
    "UnreachableError",
    "WatchEvent",
    "list_and_watch",
    "open_client",
]
