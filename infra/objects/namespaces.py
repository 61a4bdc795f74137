"""A namespace and what bounds it."""

from gpu_platform.domain import limits as object_counts
from gpu_platform.domain import names
from gpu_platform.domain.tenant_limits import TenantLimits
from infra.objects.amounts import build_amounts, canonical
from infra.objects.metadata import Json, build_metadata
from infra.sections import ContainerDefaults

POD_SECURITY_LABEL = "pod-security.kubernetes.io/enforce"
QUOTA = "platform-quota"
LIMITS = "platform-container-defaults"
DENY = "platform-default-deny"


def build_namespace(name: str, profile: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": build_metadata(name, labels={POD_SECURITY_LABEL: profile}),
    }


def build_quota(namespace: str, hard: dict[str, str]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": build_metadata(QUOTA, namespace),
        "spec": {"hard": canonical(hard)},
    }


def build_object_counts(namespace: str, limits: TenantLimits) -> Json:
    """Separate from the quota that the settings name: that one stays as it is."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": build_metadata(object_counts.QUOTA, namespace),
        "spec": {"hard": canonical(object_counts.build_hard(limits))},
    }


def build_container_defaults(namespace: str, defaults: ContainerDefaults) -> Json:
    """Put into pods when they are made, never into Deployments: the reconciler sees nothing of it. Only CPU and memory:
    units say nothing about other resources, and would be changed."""
    limit = {
        "type": "Container",
        "default": build_amounts(defaults.limits),
        "defaultRequest": build_amounts(defaults.requests),
    }
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": build_metadata(LIMITS, namespace),
        "spec": {"limits": [limit]},
    }


def build_default_deny(namespace: str) -> Json:
    """No traffic but what a unit's own policy allows. Holds also for a pod that has none, whoever made it."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": build_metadata(DENY, namespace),
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    }


def build_priority_classes() -> tuple[Json, Json]:
    """Stock never pushes anybody out, and a unit pushes out stock that slipped into its place."""
    stock = {"value": 1_000, "preemptionPolicy": "Never", "description": "Warm stock that waits for a tenant."}
    unit = {"value": 10_000, "preemptionPolicy": "PreemptLowerPriority", "description": "A tenant's unit."}
    return _priority_class(names.STOCK_PRIORITY_CLASS, stock), _priority_class(names.UNIT_PRIORITY_CLASS, unit)


def _priority_class(name: str, fields: Json) -> Json:
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": build_metadata(name)}
    return {**head, **fields}
