"""What the stack worker may do in Kubernetes: keep the index of stacks, and put back what was deleted behind the API.

Its provider could do more: programs of others change and delete what they own, and write the catalogue. The platform's
own stacks record. They delete one thing: an object that was put back while its deletion was being recorded.
"""

from gpu_platform.domain.names import GROUP
from gpu_platform.domain.rbac import Rule, Scope

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
    # What was deleted is created again; a spec that was edited is put back where the stack is first to see it. Delete:
    # of what was created again although a deletion was accepted in the same moment.
    Rule((Scope.TENANTS,), GROUP, ("gpufunctions", "gpuunits"), ("create", "update", "delete", "manage")),
    # A unit holds the storages that it mounts (patch).
    Rule((Scope.TENANTS,), GROUP, ("gpustorages",), ("create", "update", "patch", "delete", "manage")),
    Rule((Scope.STOCK,), GROUP, ("stockpools",), ("create", "update", "delete", "manage")),
    # A unit that is created again takes the place of free stock.
    Rule((Scope.STOCK,), GROUP, ("gpuunits",), ("patch", "manage")),
    # Each of these deletions is recorded first; that of a storage is taken back (delete) where a unit has mounted it.
    Rule((Scope.STOCK,), GROUP, ("operations",), ("create", "manage")),
    Rule((Scope.TENANTS,), GROUP, ("operations",), ("create", "delete", "manage")),
    # Previews are begun and ended; the Operation that created what is recorded is marked as done.
    Rule((Scope.TENANTS,), GROUP, ("operations/status",), ("patch",)),
)
