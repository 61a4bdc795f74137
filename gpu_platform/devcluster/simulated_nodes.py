"""The simulated GPU nodes: Node objects that kwok keeps Ready, with the labels a real GPU node would carry."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass

from gpu_platform.devcluster import DevClusterError
from gpu_platform.domain.conditions import is_true
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import AlreadyExistsError, KubeClient, NotFoundError
from gpu_platform.kube.paths import NODES

SIMULATED = "runtime.lokiwager.io/node=simulated"
READY_SECONDS = 30.0
POLL_SECONDS = 0.1

CORES_PER_GPU = 16
GIBIBYTES_PER_GPU = 128
PODS_PER_NODE = 1_000
"""Far above kubelet's 110: simulated pods cost nothing, and scale tests want thousands of them."""

GIBIBYTES_OF_DISK = 20 * PODS_PER_NODE
"""Twice what a unit has without an `ephemeralStorage`, so that disk is not what limits the number of pods."""


@dataclass(frozen=True)
class GpuModel:
    short: str
    product: str
    memory_mebibytes: int


MODELS = (
    GpuModel("h100", "NVIDIA-H100-80GB-HBM3", 81_559),
    GpuModel("a100", "NVIDIA-A100-SXM4-80GB", 81_920),
    GpuModel("l40s", "NVIDIA-L40S", 46_068),
    GpuModel("t4", "Tesla-T4", 15_360),
)


def plan_nodes(nodes: int, gpus: int) -> tuple[Json, ...]:
    """The Node objects of a cluster with `nodes` simulated nodes of `gpus` GPUs each; models take turns."""
    return tuple(_build_node(MODELS[index % len(MODELS)], index // len(MODELS), gpus) for index in range(nodes))


async def ensure_nodes(kube: KubeClient, nodes: int, gpus: int) -> None:
    """Make the simulated nodes exactly these, and wait until all of them are Ready."""
    wanted = {node["metadata"]["name"]: node for node in plan_nodes(nodes, gpus)}
    answer = await kube.get(NODES.collection(), {"labelSelector": SIMULATED})
    present = {node["metadata"]["name"]: node for node in answer["items"]}
    await asyncio.gather(
        *(_delete(kube, name) for name in present.keys() - wanted.keys()),
        *(_create(kube, wanted[name]) for name in wanted.keys() - present.keys()),
        *(_resize(kube, present[name], wanted[name]) for name in wanted.keys() & present.keys()),
    )
    await _wait_ready(kube, set(wanted))


def _build_node(model: GpuModel, number: int, gpus: int) -> Json:
    name = f"sim-{model.short}-{number}"
    amounts = {
        "cpu": str(CORES_PER_GPU * max(gpus, 1)),
        "memory": f"{GIBIBYTES_PER_GPU * max(gpus, 1)}Gi",
        "ephemeral-storage": f"{GIBIBYTES_OF_DISK}Gi",
        "pods": str(PODS_PER_NODE),
        "nvidia.com/gpu": str(gpus),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": f"simulated-{model.short}",
                "runtime.lokiwager.io/node": "simulated",
                "nvidia.com/gpu.present": "true",
                "nvidia.com/gpu.product": model.product,
                "nvidia.com/gpu.count": str(gpus),
                "nvidia.com/gpu.memory": str(model.memory_mebibytes),
            },
        },
        "status": {"capacity": amounts, "allocatable": amounts},
    }


async def _create(kube: KubeClient, node: Json) -> None:
    with suppress(AlreadyExistsError):
        await kube.create(NODES.collection(), node)


async def _delete(kube: KubeClient, name: str) -> None:
    with suppress(NotFoundError):
        await kube.delete(NODES.item(name))


async def _resize(kube: KubeClient, present: Json, wanted: Json) -> None:
    before, after = (node["status"]["capacity"] for node in (present, wanted))
    if all(before.get(name) == after[name] for name in ("nvidia.com/gpu", "ephemeral-storage")):
        return
    name = wanted["metadata"]["name"]
    await kube.patch(NODES.item(name), {"metadata": {"labels": wanted["metadata"]["labels"]}})
    await kube.patch(NODES.item(name, subresource="status"), {"status": wanted["status"]})


async def _wait_ready(kube: KubeClient, names: set[str]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        answer = await kube.get(NODES.collection(), {"labelSelector": SIMULATED})
        waiting = names - {node["metadata"]["name"] for node in answer["items"] if is_true(node, "Ready")}
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise DevClusterError(
                f"simulated nodes are not Ready after {READY_SECONDS:.0f} s: {', '.join(sorted(waiting))}; "
                "see `gpu-platform dev logs kwok`"
            )
        await asyncio.sleep(POLL_SECONDS)
