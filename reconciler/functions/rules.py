"""What the functions controller may do in Kubernetes."""

from gpu_platform.domain.names import GROUP
from gpu_platform.domain.rbac import Rule, Scope

RULES = (
    # A unit that takes calls of a function which does not exist makes it.
    Rule((Scope.TENANTS,), GROUP, ("gpufunctions",), ("create", "manage")),
    Rule((Scope.TENANTS,), GROUP, ("gpufunctions/status",), ("patch",)),
    # Its workers block their function's deletion, which some clusters allow only to those who may hold it up anyway.
    Rule((Scope.TENANTS,), GROUP, ("gpufunctions/finalizers",), ("update",)),
    Rule((Scope.TENANTS,), GROUP, ("gpuunits",), ("create", "update", "delete", "manage")),
    # A unit is told that its function is refused. A repeated Event is found by its name and counted up.
    Rule((Scope.TENANTS,), "", ("events",), ("get", "create", "patch")),
    # What workers write outlives them: see `worker_logs`.
    Rule((Scope.TENANTS,), "", ("pods/log",), ("get",)),
    # Claims.
    Rule((Scope.STOCK,), GROUP, ("gpuunits",), ("patch", "manage")),
    # The credentials of the workers: one Secret per function, read by its name.
    Rule((Scope.TENANTS,), "", ("secrets",), ("get", "create", "update")),
)
