"""The namespaces, and what bounds those in which others' pods run."""

from dataclasses import dataclass

import pulumi

from gpu_platform.domain import names
from gpu_platform.domain.tenants import DEFAULT_TENANT, tenant_namespace
from infra.declaring import declare
from infra.objects.namespaces import build_container_defaults, build_default_deny, build_namespace, build_quota
from infra.sections import Namespace, Namespaces, TenantNamespace


@dataclass(frozen=True)
class PlatformNamespacesArgs:
    namespaces: Namespaces
    tenants: dict[str, TenantNamespace]
    protect: bool


class PlatformNamespaces(pulumi.ComponentResource):
    def __init__(self, name: str, args: PlatformNamespacesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-platform:infra:Namespaces", name, {}, opts)
        self._is_protected = args.protect
        self._declare(names.SYSTEM_NAMESPACE, "restricted", args.namespaces.system, closed=False)
        self._declare(names.STOCK_NAMESPACE, "restricted", args.namespaces.stock)
        tenants = {DEFAULT_TENANT: args.namespaces.instance, **args.tenants}
        for tenant, namespace in tenants.items():
            self._declare(tenant_namespace(tenant), namespace.profile, namespace)
        self.tenant_namespaces = {tenant: tenant_namespace(tenant) for tenant in tenants}
        self.register_outputs({})

    def _declare(self, name: str, profile: str, bounds: Namespace, *, closed: bool = True) -> None:
        """`closed`: no traffic unless a policy allows it. Ours stays open: which address the API server has, to which
        all of our processes speak, no policy can say for every cluster."""
        namespace = declare(build_namespace(name, profile), self, protect=self._is_protected)
        declare(build_container_defaults(name, bounds.container_defaults), self, after=[namespace])
        if bounds.quota:
            declare(build_quota(name, bounds.quota), self, after=[namespace])
        if closed:
            declare(build_default_deny(name), self, after=[namespace])
