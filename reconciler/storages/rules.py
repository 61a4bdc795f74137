"""What the storages controller may do in Kubernetes."""

from gpu_platform.domain.names import GROUP
from gpu_platform.domain.rbac import Rule, Scope

TENANTS = (Scope.TENANTS,)

RULES = (
    Rule(TENANTS, "", ("persistentvolumeclaims",), ("get", "create", "patch", "delete")),
    Rule(TENANTS, "batch", ("jobs",), ("create", "patch", "delete")),
    # What a deleted Job left behind.
    Rule(TENANTS, "", ("pods",), ("delete",)),
    Rule(TENANTS, "apps", ("deployments",), ("create", "update", "delete")),
    Rule(TENANTS, "networking.k8s.io", ("networkpolicies",), ("create", "update", "delete")),
    Rule(TENANTS, "", ("services",), ("create", "update", "delete")),
    # The finalizer, and who holds it. Everywhere, because a namespace on its way out may lose its roles first, and
    # would wait for its storages for ever.
    Rule((Scope.CLUSTER,), GROUP, ("gpustorages",), ("patch", "manage")),
    Rule(TENANTS, GROUP, ("gpustorages/status",), ("patch",)),
    # Its children block their owner's deletion, which some clusters allow only to those who may hold it up anyway.
    Rule(TENANTS, GROUP, ("gpustorages/finalizers",), ("update",)),
    # A repeated Event is found by its name and counted up.
    Rule(TENANTS, "", ("events",), ("get", "create", "patch")),
)
