"""What the operations controller may do in Kubernetes: finish or undo, for the API, what a dead process left."""

from gpu_platform.domain.names import GROUP
from gpu_platform.domain.rbac import UNIT_SCOPES, Rule, Scope

RULES = (
    # The request of one that has ended is dropped (patch); the custom resource's rules allow no other change.
    Rule(UNIT_SCOPES, GROUP, ("operations",), ("patch", "delete", "manage")),
    Rule(UNIT_SCOPES, GROUP, ("operations/status",), ("patch",)),
    Rule((Scope.TENANTS,), GROUP, ("gpuunits",), ("create", "update", "delete", "manage")),
    # A function is deleted. None is made: without the API's own write, none was accepted.
    Rule((Scope.TENANTS,), GROUP, ("gpufunctions",), ("delete",)),
    # Nor is a storage. It is held for a unit that mounts it (patch).
    Rule((Scope.TENANTS,), GROUP, ("gpustorages",), ("patch", "delete", "manage")),
    # Claims are released.
    Rule((Scope.STOCK,), GROUP, ("gpuunits",), ("patch", "manage")),
    # Jobs make pools and remove them, and they make the catalogue entry of a spec that is new.
    Rule((Scope.STOCK,), GROUP, ("stockpools",), ("create", "delete", "manage")),
    Rule((Scope.CLUSTER,), GROUP, ("gpuspecs",), ("create", "manage")),
)
