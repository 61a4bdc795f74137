"""Units that are not Ready say what was seen of their pods, their nodes and their quota, and nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient, NotFoundError, PatchType, ResourcePath
from gpu_platform.kube.paths import GPU_SPECS, NODES, PODS
from tests.support.clusters import RunningCluster
from tests.support.tenants import tenant
from tests.support.units_and_stock import (
    INSTANCES,
    create_unit,
    delete_unit,
    ensure_spec,
    get_unit,
    ready_condition,
    unit_body,
)
from tests.support.units_api import spec_body
from tests.support.waiting import NotYet, eventually

QUOTAS = ResourcePath("v1", "resourcequotas")
REPLICA_SETS = ResourcePath("apps/v1", "replicasets")
NODE = "tests-away"
UNIT = "waiting"


async def wait_message(kube: KubeClient, name: str, words: str, namespace: str = INSTANCES) -> Json:
    async def says_so() -> Json | NotYet:
        unit = await get_unit(kube, name, namespace)
        if not unit.get("status", {}).get("conditions"):
            return NotYet(unit.get("status"))
        condition = ready_condition(unit)
        return condition if words in condition["message"] else NotYet(condition)

    return await eventually(says_so)


async def report_node(kube: KubeClient, status: str, reason: str, message: str) -> None:
    """What a kubelet, or the node controller in its place, says of the node."""
    condition = {"type": "Ready", "status": status, "reason": reason, "message": message}
    room = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "10"}
    body = {"status": {"conditions": [condition], "capacity": room, "allocatable": room}}
    await kube.patch(NODES.item(NODE, subresource="status"), body, PatchType.MERGE)


@asynccontextmanager
async def node_without_kubelet(kube: KubeClient) -> AsyncIterator[None]:
    """Takes pods of one spec only, and runs none of them."""
    taint = {"key": "tests", "value": "away", "effect": "NoSchedule"}
    metadata = {"name": NODE, "labels": {"tests": "away"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": [taint]}}
    tolerations = [{"key": "tests", "operator": "Exists"}]
    await ensure_spec(kube, spec_body("tests-away", gpu=0, nodeSelector={"tests": "away"}, tolerations=tolerations))
    await kube.create(NODES.collection(), node)
    try:
        yield
    finally:
        await kube.delete(NODES.item(NODE))
        await kube.delete(GPU_SPECS.item("tests-away"))


async def force_delete_pods(kube: KubeClient, unit: str) -> None:
    """No kubelet confirms their end, and until it is collected their ReplicaSet makes new ones."""

    async def are_gone() -> bool | NotYet:
        selector = {"labelSelector": f"{names.LABEL_UNIT}={unit}"}
        for pod in (await kube.get(PODS.collection(INSTANCES), selector))["items"]:
            with suppress(NotFoundError):
                await kube.delete(PODS.item(pod["metadata"]["name"], INSTANCES), {"gracePeriodSeconds": 0})
        left = [await kube.get(kind.collection(INSTANCES), selector) for kind in (REPLICA_SETS, PODS)]
        return not any(found["items"] for found in left) or NotYet(left)

    await eventually(are_gone)


async def is_enforced(kube: KubeClient, quota: str) -> bool:
    """Admission knows nothing of a quota that Kubernetes has not counted yet."""
    return "pods" in (await kube.get(quota)).get("status", {}).get("hard", {})


async def test_a_unit_whose_node_is_away_names_the_node_and_its_words(kube: KubeClient) -> None:
    async with node_without_kubelet(kube):
        await report_node(kube, "True", "KubeletReady", "kubelet is posting ready status")
        await create_unit(kube, unit_body(UNIT, specName="tests-away"))
        starting = await wait_message(kube, UNIT, "its pod is starting")

        await report_node(kube, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
        away = await wait_message(kube, UNIT, NODE)
        assert away["message"] == (
            f"its pod is on node {NODE}, which is not Ready (NodeStatusUnknown: Kubelet stopped posting node status.)"
        )
        assert away["reason"] == starting["reason"] == "UnitProgressing"

        await delete_unit(kube, UNIT)
        await force_delete_pods(kube, UNIT)


async def test_a_unit_whose_pod_is_refused_says_why_in_the_words_of_the_quota(
    cluster: RunningCluster, kube: KubeClient
) -> None:
    async with tenant(kube, cluster.record.platform_url, Role.VIEWER) as poor:
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "none"},
            "spec": {"hard": {"pods": 0}},
        }
        await kube.create(QUOTAS.collection(poor.namespace), quota)
        await eventually(partial(is_enforced, kube, QUOTAS.item("none", poor.namespace)))
        await create_unit(kube, unit_body(UNIT, namespace=poor.namespace))
        refused = await wait_message(kube, UNIT, "cannot be created", poor.namespace)
        assert refused["message"].startswith("its pod cannot be created: pods ")
        assert "exceeded quota: none" in refused["message"]
        await delete_unit(kube, UNIT, poor.namespace)
