"""What the provider may do in Kubernetes. Imports the domain alone, because the bootstrap program reads it."""

from gpu_platform.domain.names import GROUP
from gpu_platform.domain.rbac import Rule, Scope

RULES = (
    Rule((Scope.TENANTS,), GROUP, ("gpuunits",), ("get", "create", "update", "delete", "manage")),
    Rule((Scope.TENANTS,), GROUP, ("gpufunctions",), ("get", "create", "update", "delete", "manage")),
    # A unit holds the storages that it mounts (patch).
    Rule((Scope.TENANTS,), GROUP, ("gpustorages",), ("get", "create", "update", "patch", "delete", "manage")),
    # A unit that is made new takes the place of free stock.
    Rule((Scope.STOCK,), GROUP, ("gpuunits",), ("list", "patch", "manage")),
    # That what a tenant has is deleted on purpose is recorded first, and taken back when it cannot be; what made it is
    # marked as done.
    Rule((Scope.TENANTS,), GROUP, ("operations",), ("get", "create", "delete", "manage")),
    Rule((Scope.TENANTS,), GROUP, ("operations/status",), ("patch",)),
    Rule((Scope.STOCK,), GROUP, ("operations",), ("get", "create", "manage")),
    Rule((Scope.STOCK,), GROUP, ("stockpools",), ("get", "create", "update", "delete", "manage")),
    Rule((Scope.CLUSTER,), GROUP, ("gpuspecs",), ("get", "create", "update", "delete", "manage")),
)
