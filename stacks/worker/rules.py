"""What the stack worker may do in Kubernetes: keep the index of stacks, and put back what was deleted behind the API.

Its provider could do more: programs of others change and delete what they own. The platform's own stacks record, and
delete nothing.
"""

from gpu_platform.domain.access import Rule, Scope
from gpu_platform.domain.names import GROUP

RULES = (
    # Its caches follow whole kinds: one watch each, however many tenants there are. Before a stack is removed, the API
    # server itself is asked whether its object is gone; its namespace may be gone, too.
    Rule(
        (Scope.CLUSTER,),
        GROUP,
        ("gpufunctions", "gpustorages", "gpuunits", "operations", "stockpools"),
        ("get", "list", "watch"),
    ),
    # The index. The names of its Leases are those of tenants' units, storages and functions.
    Rule((Scope.SYSTEM,), "coordination.k8s.io", ("leases",), ("list", "watch", "create", "update", "delete")),
    # What was deleted is created again; a spec that was edited is put back where the stack is first to see it.
    Rule((Scope.TENANTS,), GROUP, ("gpufunctions", "gpuunits"), ("create", "update", "manage")),
    # A unit holds the storages that it mounts (patch).
    Rule((Scope.TENANTS,), GROUP, ("gpustorages",), ("create", "update", "patch", "manage")),
    Rule((Scope.STOCK,), GROUP, ("stockpools",), ("create", "update", "manage")),
    # A unit that is created again takes the place of free stock.
    Rule((Scope.STOCK,), GROUP, ("gpuunits",), ("patch", "manage")),
    # Previews are begun and ended; the Operation that created what is recorded is marked as done.
    Rule((Scope.TENANTS,), GROUP, ("operations",), ("manage",)),
    Rule((Scope.TENANTS,), GROUP, ("operations/status",), ("patch",)),
)
