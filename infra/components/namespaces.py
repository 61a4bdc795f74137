"""The namespaces, and what bounds those in which others' pods run."""

from dataclasses import dataclass

import pulumi

from gpu_platform.domain import names
from gpu_platform.domain.tenant_limits import TenantLimits
from gpu_platform.domain.tenants import DEFAULT_TENANT, tenant_namespace
from infra.declaring import declare, name_of
from infra.objects.namespaces import (
    build_container_defaults,
    build_default_deny,
    build_namespace,
    build_object_counts,
    build_quota,
)
from infra.sections import Namespace, Namespaces, TenantNamespace


@dataclass(frozen=True)
class PlatformNamespacesArgs:
    namespaces: Namespaces
    tenants: dict[str, TenantNamespace]
    limits: TenantLimits
    """Of all tenants; each may have others."""

    protect: bool


class PlatformNamespaces(pulumi.ComponentResource):
    def __init__(self, name: str, args: PlatformNamespacesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-platform:infra:Namespaces", name, {}, opts)
        self._is_protected = args.protect
        self.system = self._declare(names.SYSTEM_NAMESPACE, "restricted", args.namespaces.system, closed=False)
        self.stock = self._declare(names.STOCK_NAMESPACE, "restricted", args.namespaces.stock)
        self.tenants = {
            tenant: self._declare(
                tenant_namespace(tenant), namespace.profile, namespace, limits=args.limits.override(namespace.limits)
            )
            for tenant, namespace in {DEFAULT_TENANT: args.namespaces.instance, **args.tenants}.items()
        }
        self.register_outputs({"system": self.system, "stock": self.stock, "tenants": self.tenants})

    def _declare(
        self, name: str, profile: str, bounds: Namespace, *, closed: bool = True, limits: TenantLimits | None = None
    ) -> pulumi.Output[str]:
        """`limits` are those of a tenant's namespace. `closed`: no traffic unless a policy allows it. Ours is closed
        together with its processes, whose policies leave open what they need: here they may be others, that an
        operator runs."""
        namespace = declare(build_namespace(name, profile), self, protect=self._is_protected)
        declare(build_container_defaults(name, bounds.container_defaults), self, after=[namespace])
        if bounds.quota:
            declare(build_quota(name, bounds.quota), self, after=[namespace])
        if limits is not None:
            declare(build_object_counts(name, limits), self, after=[namespace])
        if closed:
            declare(build_default_deny(name), self, after=[namespace])
        return name_of(namespace)
