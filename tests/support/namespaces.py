"""Namespaces in which the platform's processes may work, as the bootstrap makes those of tenants."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from gpu_platform.adapters.kube import KubeClient
from gpu_platform.adapters.kube.paths import NAMESPACES, SERVICE_ACCOUNTS, ResourcePath
from gpu_platform.domain.access import ACCOUNTS
from infra.objects.roles import RBAC, build_tenant_binding
from tests.support.units_and_stock import find
from tests.support.waiting import eventually

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
    # Pods are refused until the controller manager has made the namespace's account.
    await eventually(lambda: find(kube, SERVICE_ACCOUNTS.item("default", name)))
