"""What the units controller may do in Kubernetes."""

from gpu_platform.domain.names import GROUP
from gpu_platform.domain.rbac import UNIT_SCOPES, Rule, Scope

RULES = (
    # Its children. A stock unit has no Service and no ConfigMap, but one that somebody made in its name is removed.
    Rule(UNIT_SCOPES, "apps", ("deployments",), ("create", "update", "delete")),
    Rule(UNIT_SCOPES, "networking.k8s.io", ("networkpolicies",), ("create", "update", "delete")),
    Rule((Scope.TENANTS,), "", ("configmaps", "services"), ("create", "update", "delete")),
    Rule((Scope.STOCK,), "", ("configmaps", "services"), ("delete",)),
    # The public address of a unit. Ingresses are removed also where the setting is now HTTPRoute, or nothing.
    Rule((Scope.TENANTS,), "networking.k8s.io", ("ingresses",), ("create", "update", "delete")),
    Rule((Scope.TENANTS,), "gateway.networking.k8s.io", ("httproutes",), ("create", "update", "delete")),
    Rule((Scope.STOCK,), "networking.k8s.io", ("ingresses",), ("delete",)),
    Rule((Scope.STOCK,), "gateway.networking.k8s.io", ("httproutes",), ("delete",)),
    # The token of a unit's SSH: looked for by its name, given to the unit, removed when the unit has another or none.
    Rule((Scope.TENANTS,), "", ("secrets",), ("get", "update", "delete")),
    Rule(UNIT_SCOPES, GROUP, ("gpuunits/status",), ("patch",)),
    Rule(UNIT_SCOPES, GROUP, ("gpuunits",), ("manage",)),
    # The list of its spare tokens.
    Rule((Scope.TENANTS,), GROUP, ("gpuunits",), ("update",)),
    # Its children block their owner's deletion, which some clusters allow only to those who may hold it up anyway.
    Rule(UNIT_SCOPES, GROUP, ("gpuunits/finalizers",), ("update",)),
    # Stock whose GPUs were handed over.
    Rule((Scope.STOCK,), GROUP, ("gpuunits",), ("delete",)),
    # A repeated Event is found by its name and counted up.
    Rule(UNIT_SCOPES, "", ("events",), ("get", "create", "patch")),
)
