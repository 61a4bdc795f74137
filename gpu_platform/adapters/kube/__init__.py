"""Kubernetes over `kubernetes.aio`: JSON in, JSON out, a time limit on every call, errors of our own."""

from gpu_platform.adapters.kube.client import KubeClient, PatchType
from gpu_platform.adapters.kube.connection import NoConnectionError, open_client
from gpu_platform.adapters.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    GoneError,
    KubeError,
    NotFoundError,
    QuotaBusyError,
    UnreachableError,
)
from gpu_platform.adapters.kube.paths import ResourcePath
from gpu_platform.adapters.kube.watch import WatchEvent, list_and_watch

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
