"""Pods that ask for GPUs land on the simulated nodes, as long as there are GPUs."""

from typing import Any

from gpu_platform.adapters.kube import KubeClient
from gpu_platform.adapters.kube.paths import DEPLOYMENTS, EVENTS, NODES, PODS
from gpu_platform.devcluster.nodes import SIMULATED
from tests.support.clusters import GPUS
from tests.support.clusters import NODES as NODE_COUNT
from tests.support.waiting import eventually


def gpu_deployment(name: str, gpus: int) -> dict[str, Any]:
    container = {"name": "main", "image": "example/train", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
        },
    }


async def test_deployment_with_two_gpus_is_available_on_a_simulated_node(kube: KubeClient, namespace: str) -> None:
    await kube.create(DEPLOYMENTS.collection(namespace), gpu_deployment("pair", 2))

    async def available() -> bool:
        deployment = await kube.get(DEPLOYMENTS.item("pair", namespace))
        return int(deployment["status"].get("availableReplicas", 0)) == 1

    await eventually(available)
    [pod] = (await kube.get(PODS.collection(namespace)))["items"]
    node = await kube.get(NODES.item(pod["spec"]["nodeName"]))
    assert node["metadata"]["labels"]["runtime.lokiwager.io/node"] == "simulated"
    assert pod["status"]["podIP"].startswith("10.")


async def test_one_gpu_more_than_there_is_stays_pending_and_says_why(kube: KubeClient, namespace: str) -> None:
    await kube.create(DEPLOYMENTS.collection(namespace), gpu_deployment("greedy", GPUS + 1))

    async def scheduling_failure() -> str | None:
        events = await kube.get(EVENTS.collection(namespace), {"fieldSelector": "reason=FailedScheduling"})
        return next((str(event["message"]) for event in events["items"]), None)

    assert "Insufficient nvidia.com/gpu" in await eventually(scheduling_failure)
    [pod] = (await kube.get(PODS.collection(namespace)))["items"]
    assert pod["status"]["phase"] == "Pending"


async def test_simulated_nodes_have_gpus_of_several_models(kube: KubeClient) -> None:
    nodes = (await kube.get(NODES.collection(), {"labelSelector": SIMULATED}))["items"]
    assert len(nodes) == NODE_COUNT
    assert {node["status"]["allocatable"]["nvidia.com/gpu"] for node in nodes} == {str(GPUS)}
    products = {node["metadata"]["labels"]["nvidia.com/gpu.product"] for node in nodes}
    assert len(products) == NODE_COUNT
