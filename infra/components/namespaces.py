"""The namespaces, and what bounds those in which others' pods run."""

from dataclasses import dataclass
from typing import Literal

import pulumi
from pydantic import Field

from gpu_platform.domain import names
from gpu_platform.domain import tenant_limits as object_counts
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.tenant_limits import TenantLimits
from gpu_platform.domain.tenants import DEFAULT_TENANT, tenant_namespace
from gpu_platform.settings import Settings
from infra.component import Component, build_amounts, build_object, canonical, name_of
from infra.field_types import Amounts, Ceiling

POD_SECURITY_LABEL = "pod-security.kubernetes.io/enforce"
QUOTA = "platform-quota"
LIMITS = "platform-container-defaults"
DENY = "platform-default-deny"


class ContainerDefaults(Settings):
    """What a container gets that says nothing itself. Units always say, so that no unit is changed by these."""

    requests: Amounts = Amounts(cpu="100m", memory="128Mi")
    limits: Amounts = Amounts(cpu="1", memory="1Gi")


class Namespace(Settings):
    quota: dict[str, Ceiling] = Field(default={})
    """As in a ResourceQuota's `hard`; empty for none."""

    container_defaults: ContainerDefaults = ContainerDefaults()


class TenantNamespace(Namespace):
    profile: Literal["baseline", "restricted"] = "baseline"
    """The Pod Security profile. Most public GPU images run as root inside, which `restricted` refuses."""

    limits: TenantLimits = TenantLimits()
    """What differs for this tenant from `tenantLimits`."""


class Namespaces(Settings):
    """The platform's own three. Their names are not settings: the processes have to know them."""

    system: Namespace = Namespace()
    stock: Namespace = Namespace()
    instance: TenantNamespace = TenantNamespace()


def build_namespace(name: str, profile: str) -> Json:
    return build_object("Namespace", name, labels={POD_SECURITY_LABEL: profile})


def build_quota(namespace: str, hard: dict[str, str]) -> Json:
    return build_object("ResourceQuota", QUOTA, namespace, spec={"hard": canonical(hard)})


def build_object_counts(namespace: str, limits: TenantLimits) -> Json:
    """Separate from the quota that the settings name: that one stays as it is."""
    return build_object(
        "ResourceQuota", object_counts.QUOTA, namespace, spec={"hard": canonical(object_counts.build_hard(limits))}
    )


def build_container_defaults(namespace: str, defaults: ContainerDefaults) -> Json:
    """Put into pods when they are made, never into Deployments: the reconciler sees nothing of it. Only CPU and memory:
    units say nothing about other resources, and would be changed."""
    limit = {
        "type": "Container",
        "default": build_amounts(defaults.limits),
        "defaultRequest": build_amounts(defaults.requests),
    }
    return build_object("LimitRange", LIMITS, namespace, spec={"limits": [limit]})


def build_default_deny(namespace: str) -> Json:
    """No traffic but what a unit's own policy allows. Holds also for a pod that has none, whoever made it."""
    return build_object(
        "NetworkPolicy", DENY, namespace, spec={"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    )


@dataclass(frozen=True)
class PlatformNamespacesArgs:
    namespaces: Namespaces
    tenants: dict[str, TenantNamespace]
    limits: TenantLimits
    """Of all tenants; each may have others."""

    protect: bool


class PlatformNamespaces(Component):
    def __init__(self, name: str, args: PlatformNamespacesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("Namespaces", name, opts)
        self._is_protected = args.protect
        self.system = self._declare_one(names.SYSTEM_NAMESPACE, "restricted", args.namespaces.system, closed=False)
        self.stock = self._declare_one(names.STOCK_NAMESPACE, "restricted", args.namespaces.stock)
        self.tenants = {
            tenant: self._declare_one(
                tenant_namespace(tenant), namespace.profile, namespace, limits=args.limits.override(namespace.limits)
            )
            for tenant, namespace in {DEFAULT_TENANT: args.namespaces.instance, **args.tenants}.items()
        }
        self.register_outputs({"system": self.system, "stock": self.stock, "tenants": self.tenants})

    def _declare_one(
        self, name: str, profile: str, bounds: Namespace, *, closed: bool = True, limits: TenantLimits | None = None
    ) -> pulumi.Output[str]:
        """`limits` are those of a tenant's namespace. `closed`: no traffic unless a policy allows it. Ours is closed
        together with its processes, whose policies leave open what they need: here they may be others, that an
        operator runs."""
        namespace = self.declare(build_namespace(name, profile), protect=self._is_protected)
        self.declare(build_container_defaults(name, bounds.container_defaults), after=[namespace])
        if bounds.quota:
            self.declare(build_quota(name, bounds.quota), after=[namespace])
        if limits is not None:
            self.declare(build_object_counts(name, limits), after=[namespace])
        if closed:
            self.declare(build_default_deny(name), after=[namespace])
        return name_of(namespace)
