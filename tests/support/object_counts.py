"""The quota of a tenant's objects, as the bootstrap declares it."""

from gpu_platform.domain.limits import QUOTA, TenantLimits, is_counted
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import RESOURCE_QUOTAS
from infra.components.namespaces import build_object_counts
from tests.support.units_and_stock import INSTANCES
from tests.support.waiting import NotYet, eventually


async def limit_objects(kube: KubeClient, namespace: str, limits: TenantLimits) -> None:
    """Creates the quota, and waits until it holds."""
    await kube.create(RESOURCE_QUOTAS.collection(namespace), build_object_counts(namespace, limits))
    await wait_counted(kube, namespace)


async def change_limits(kube: KubeClient, namespace: str, limits: TenantLimits) -> None:
    path = RESOURCE_QUOTAS.item(QUOTA, namespace)
    await kube.patch(path, {"spec": build_object_counts(namespace, limits)["spec"]})
    await wait_counted(kube, namespace)


async def wait_counted(kube: KubeClient, namespace: str = INSTANCES) -> None:
    """Right after the bootstrap of an empty cluster, Kubernetes does not know our kinds well enough to count them."""

    async def has_counts() -> bool | NotYet:
        quota = await kube.get(RESOURCE_QUOTAS.item(QUOTA, namespace))
        return is_counted(quota) or NotYet(quota.get("status"))

    await eventually(has_counts)
