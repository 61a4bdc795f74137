"""The RBAC rules of the API: what it may do in Kubernetes, and why."""

from gpu_platform.domain.names import GROUP
from gpu_platform.domain.rbac import UNIT_SCOPES, Rule, Scope
from gpu_platform.domain.tenant_limits import LIMITS_CONFIG_MAP
from gpu_platform.domain.tenants import KEYS_SECRET

RULES = (
    # Its caches: health, inventory, stock and the catalogue are answered from them, and objects are counted. A list of
    # the whole cluster shows every object, so `get` adds nothing; in a namespace that is gone, it finds nothing.
    Rule(
        (Scope.CLUSTER,),
        GROUP,
        ("gpufunctions", "gpuspecs", "gpustorages", "gpuunits", "operations", "stockpools"),
        ("get", "list", "watch"),
    ),
    # Pods of units among them: calls are passed on to where they are.
    Rule((Scope.CLUSTER,), "", ("nodes", "pods"), ("list", "watch")),
    Rule((Scope.SYSTEM,), "", ("secrets",), ("get",), names=(KEYS_SECRET,)),
    Rule((Scope.SYSTEM,), "", ("configmaps",), ("get",), names=(LIMITS_CONFIG_MAP,)),
    # The index of stacks, of which the names are those of tenants' units: one entry at a time, and all for the drift.
    Rule((Scope.SYSTEM,), "coordination.k8s.io", ("leases",), ("get", "list", "watch")),
    # Tenants' units, storages and functions: made, changed, watched, deleted.
    Rule((Scope.TENANTS,), GROUP, ("gpuunits",), ("create", "update", "delete", "manage")),
    Rule((Scope.TENANTS,), GROUP, ("gpufunctions",), ("create", "update", "delete", "manage")),
    # Held for the unit that mounts them, and prepared anew (patch).
    Rule((Scope.TENANTS,), GROUP, ("gpustorages",), ("create", "update", "patch", "delete", "manage")),
    # Stock: claimed and given back (patch), and thrown away while nobody has claimed it.
    Rule((Scope.STOCK,), GROUP, ("gpuunits",), ("patch", "delete", "manage")),
    # The ledger. A refused request is forgotten.
    Rule(UNIT_SCOPES, GROUP, ("operations",), ("create", "manage")),
    Rule((Scope.TENANTS,), GROUP, ("operations",), ("delete",)),
    Rule((Scope.TENANTS,), GROUP, ("operations/status",), ("patch",)),
    # Pools are made by the reconciler, from a job.
    Rule((Scope.STOCK,), GROUP, ("stockpools",), ("update", "delete", "manage")),
    # The FRP tokens of units: one Secret each, made once, found by its name.
    Rule((Scope.TENANTS,), "", ("secrets",), ("get", "create", "update")),
    # What a tenant may see of a unit's pods: what they wrote, what happened to them.
    Rule((Scope.TENANTS,), "", ("events",), ("list",)),
    Rule((Scope.TENANTS,), "", ("pods/log",), ("get",)),
)
