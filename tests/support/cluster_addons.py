"""What the production example takes for granted, and somebody else brings: a Prometheus Operator's kind, volumes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, ResourcePath
from tests.support.waiting import eventually

CRDS = ResourcePath("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)
VOLUMES = ResourcePath("v1", "persistentvolumes", namespaced=False)
MONITORS = "servicemonitors.monitoring.coreos.com"


@asynccontextmanager
async def cluster_addons(kube: KubeClient, volumes: int) -> AsyncIterator[None]:
    await kube.create(CRDS.collection(), _service_monitor_kind())
    names = [f"foreign-{number}" for number in range(volumes)]
    for name in names:
        await kube.create(VOLUMES.collection(), _volume(name))

    async def is_served() -> bool:
        conditions = (await kube.get(CRDS.item(MONITORS))).get("status", {}).get("conditions") or []
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    await eventually(is_served)
    try:
        yield
    finally:
        await kube.delete(CRDS.item(MONITORS))
        for name in names:
            await kube.delete(VOLUMES.item(name))


def _service_monitor_kind() -> Json:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    words = {"kind": "ServiceMonitor", "plural": "servicemonitors", "singular": "servicemonitor"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": MONITORS},
        "spec": {"group": "monitoring.coreos.com", "scope": "Namespaced", "names": words, "versions": [version]},
    }


def _volume(name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "20Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "hostPath": {"path": "/nowhere"},
        },
    }
