"""Pods that ask for GPUs land on the simulated nodes, as long as there are GPUs."""

from typing import Any

import pytest

from gpu_platform.devcluster.simulated_nodes import SIMULATED
from gpu_platform.domain.conditions import is_true
from gpu_platform.kube import KubeClient, PatchType
from gpu_platform.kube.paths import DEPLOYMENTS, EVENTS, NODES, PODS
from tests.support.cluster_processes import frozen
from tests.support.clusters import GPUS, RunningCluster
from tests.support.clusters import NODES as NODE_COUNT
from tests.support.fault_report import FaultReport
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


async def test_a_pod_that_was_marked_not_ready_is_ready_again(kube: KubeClient, namespace: str) -> None:
    """As the node lifecycle controller marks the pods of a node whose heartbeats it missed."""
    await kube.create(DEPLOYMENTS.collection(namespace), gpu_deployment("marked", 1))
    [pod] = await eventually(lambda: ready_pods(kube, namespace))
    change = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    path = PODS.item(pod["metadata"]["name"], namespace, "status")
    marked = await kube.patch(path, change, PatchType.STRATEGIC)
    assert not is_true(marked, "Ready")

    [again] = await eventually(lambda: ready_pods(kube, namespace))
    assert again["metadata"]["uid"] == pod["metadata"]["uid"]
    started = [each["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] for each in (pod, again)]
    assert started[0] == started[1]
    assert (again["status"]["podIP"], is_true(again, "ContainersReady")) == (pod["status"]["podIP"], True)


@pytest.mark.faults
async def test_capacity_returns_after_the_heartbeats_of_the_nodes_stayed_away(
    kube: KubeClient, cluster: RunningCluster, namespace: str, faults: FaultReport
) -> None:
    await kube.create(DEPLOYMENTS.collection(namespace), gpu_deployment("away", 1))
    [pod] = await eventually(lambda: ready_pods(kube, namespace))

    async def is_marked() -> bool:
        return not await ready_pods(kube, namespace)

    with frozen(cluster, "kwok"):
        await eventually(is_marked)
        faults.hit("pods of nodes without heartbeats")
    [again] = await eventually(lambda: ready_pods(kube, namespace))
    assert again["metadata"]["uid"] == pod["metadata"]["uid"]

    async def all_nodes_are_ready() -> bool:
        return all(is_true(node, "Ready") for node in (await kube.get(NODES.collection()))["items"])

    await eventually(all_nodes_are_ready)
    faults.held("pods are Ready again", "nodes are Ready again")


async def ready_pods(kube: KubeClient, namespace: str) -> list[dict[str, Any]]:
    pods = (await kube.get(PODS.collection(namespace)))["items"]
    return [pod for pod in pods if is_true(pod, "Ready")]


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
