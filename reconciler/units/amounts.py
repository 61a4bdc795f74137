"""What the containers and volumes beside a tenant's own container may use. Pure."""

from typing import Any

Json = dict[str, Any]

EPHEMERAL_STORAGE = "ephemeral-storage"
"""A container's own files and logs, and the pod's volumes on the node's disk. A pod that has more is evicted."""

HELPER_DISK = "1Gi"
"""Logs, and little else."""

JOB_DISK = "10Gi"
"""Of a container that prepares a storage: what it unpacks on the way to the storage."""


def build_helper_resources(*, cpu: str, memory: str) -> Json:
    """Nothing is asked of the scheduler: the place that the stock held has to be enough."""
    limits = {"cpu": cpu, "memory": memory, EPHEMERAL_STORAGE: HELPER_DISK}
    return {"requests": dict.fromkeys(limits, "0"), "limits": limits}


def build_disk_limit(limit: str) -> Json:
    """For a container that gets its CPU and memory from the namespace's LimitRange."""
    return {"requests": {EPHEMERAL_STORAGE: "0"}, "limits": {EPHEMERAL_STORAGE: limit}}


def build_empty_dir(limit: str) -> Json:
    return {"emptyDir": {"sizeLimit": limit}}
