"""The Node object and its Lease, as this machine is shown to Kubernetes. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from gpu_platform.devcluster.hostnode.launch.fields import HOST_ADDRESS
from gpu_platform.devcluster.hostnode.names import HOST_NODE_TAINT, NODE_NAME
from gpu_platform.devcluster.hostnode.times import format_micro_time, format_time
from gpu_platform.kube.client import Json

PODS = 200
"""Twice what the node is made for."""

DISK = "1Ti"
"""For the scheduler: nothing here measures what a process writes."""

LEASE_SECONDS = 40
"""As kubelet's: four missed renewals and the node is not ready."""

TAINT = {"key": HOST_NODE_TAINT, "value": "true", "effect": "NoSchedule"}


@dataclass(frozen=True)
class Machine:
    operating_system: str
    architecture: str
    kernel: str
    processors: int
    memory_kibibytes: int
    gpus: int
    """Simulated: the scheduler counts them, nothing else knows of them."""

    @property
    def capacity(self) -> dict[str, str]:
        return {
            "cpu": str(self.processors),
            "memory": f"{self.memory_kibibytes}Ki",
            "ephemeral-storage": DISK,
            "pods": str(PODS),
            "nvidia.com/gpu": str(self.gpus),
        }

    @property
    def labels(self) -> dict[str, str]:
        return {
            "kubernetes.io/hostname": NODE_NAME,
            "kubernetes.io/os": self.operating_system,
            "kubernetes.io/arch": self.architecture,
            "nvidia.com/gpu.product": "Host-Process",
            "nvidia.com/gpu.present": "true",
            "runtime.lokiwager.io/node": NODE_NAME,
        }


def build_node(machine: Machine) -> Json:
    """Only a new Node carries its taint: NodeRestriction lets no node change its own taints later."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE_NAME, "labels": machine.labels},
        "spec": {"taints": [TAINT]},
    }


def plan_labels(node: Json, machine: Machine) -> dict[str, str]:
    """The labels that a Node from an earlier run lacks."""
    present: Mapping[str, str] = node["metadata"].get("labels") or {}
    return {key: value for key, value in machine.labels.items() if present.get(key) != value}


def is_tainted(node: Json) -> bool:
    return any(taint["key"] == HOST_NODE_TAINT for taint in node["spec"].get("taints") or [])


def build_node_status(node: Json, machine: Machine, port: int, *, ready: bool, now: datetime) -> Json:
    known = {condition["type"]: condition for condition in (node.get("status") or {}).get("conditions") or []}
    reason, message = (
        ("HostNodeReady", "the host node runs pods as local processes")
        if ready
        else ("HostNodeStopped", "the host node's agent has been stopped")
    )
    conditions = [
        _condition(known, "MemoryPressure", "False", "NotMeasured", "the host node does not measure it", now),
        _condition(known, "DiskPressure", "False", "NotMeasured", "the host node does not measure it", now),
        _condition(known, "PIDPressure", "False", "NotMeasured", "the host node does not measure it", now),
        _condition(known, "Ready", "True" if ready else "False", reason, message, now),
    ]
    return {
        "addresses": [
            {"type": "InternalIP", "address": HOST_ADDRESS},
            {"type": "Hostname", "address": NODE_NAME},
        ],
        "capacity": machine.capacity,
        "allocatable": machine.capacity,
        "conditions": conditions,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": {
            "architecture": machine.architecture,
            "operatingSystem": machine.operating_system,
            "kernelVersion": machine.kernel,
            "osImage": "the developer's machine",
            "containerRuntimeVersion": "process://1",
            "kubeletVersion": "v0.0.0-host-node",
            "kubeProxyVersion": "",
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
        },
    }


def build_lease(node: Json, now: datetime) -> Json:
    owner = {"apiVersion": "v1", "kind": "Node", "name": NODE_NAME, "uid": node["metadata"]["uid"]}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NODE_NAME, "ownerReferences": [owner]},
        "spec": {
            "holderIdentity": NODE_NAME,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": format_micro_time(now),
        },
    }


def _condition(known: Mapping[str, Json], kind: str, status: str, reason: str, message: str, now: datetime) -> Json:
    before = known.get(kind, {})
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": format_time(now),
        "lastTransitionTime": before["lastTransitionTime"] if before.get("status") == status else format_time(now),
    }
