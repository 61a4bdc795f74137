"""Namespaces in which the platform's processes may work, as the bootstrap makes those of tenants, and the quotas of
their objects.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from gpu_platform.domain.names import GROUP
from gpu_platform.domain.rbac import ACCOUNTS, account_user
from gpu_platform.domain.tenant_limits import QUOTA, TenantLimits, is_counted
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import NAMESPACES, RESOURCE_QUOTAS, SERVICE_ACCOUNTS, ResourcePath
from infra.components.access import RBAC, build_tenant_binding
from infra.components.namespaces import build_object_counts
from tests.support.access_reviews import REVIEWS
from tests.support.units_and_stock import INSTANCES, find
from tests.support.waiting import NotYet, eventually

ROLE_BINDINGS = ResourcePath(RBAC, "rolebindings")


@asynccontextmanager
async def tenant_namespace_of(
    kube: KubeClient, name: str, labels: Mapping[str, str] | None = None
) -> AsyncIterator[None]:
    """Creates the namespace, and deletes it at the end of the block without waiting for it."""
    await create_namespace(kube, name, labels)
    try:
        yield
    finally:
        await kube.delete(NAMESPACES.item(name))


async def create_namespace(kube: KubeClient, name: str, labels: Mapping[str, str] | None = None) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels or {})}}
    await kube.create(NAMESPACES.collection(), body)
    for account in ACCOUNTS:
        await kube.create(ROLE_BINDINGS.collection(name), build_tenant_binding(account, name))
    await eventually(lambda: _has_rights(kube, name))
    # Pods are refused until the controller manager has made the namespace's account.
    await eventually(lambda: find(kube, SERVICE_ACCOUNTS.item("default", name)))


async def _has_rights(kube: KubeClient, namespace: str) -> bool:
    """The API server learns of role bindings a moment after they were made: of all of them, when of the last."""
    attributes = {"namespace": namespace, "group": GROUP, "resource": "gpuunits", "verb": "create"}
    spec = {"user": account_user(ACCOUNTS[-1]), "resourceAttributes": attributes}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    return bool((await kube.create(REVIEWS, body))["status"]["allowed"])


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
