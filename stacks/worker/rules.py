"""What the stack worker may do in Kubernetes: keep the index of stacks, and whatever its provider does."""

from gpu_platform.domain.access import UNIT_SCOPES, Rule, Scope
from gpu_platform.domain.names import GROUP
from providers.cluster.rules import RULES as PROVIDER_RULES

RULES = (
    *PROVIDER_RULES,
    # Its caches follow whole kinds: one watch each, however many tenants there are.
    Rule(
        (Scope.CLUSTER,),
        GROUP,
        ("gpufunctions", "gpustorages", "gpuunits", "operations", "stockpools"),
        ("list", "watch"),
    ),
    # The index. The names of its Leases are those of tenants' units, storages and functions.
    Rule((Scope.SYSTEM,), "coordination.k8s.io", ("leases",), ("list", "watch", "create", "update", "delete")),
    # Before a stack is removed, the API server itself is asked whether its object is gone.
    Rule(UNIT_SCOPES, GROUP, ("operations",), ("get",)),
    Rule((Scope.TENANTS,), GROUP, ("gpufunctions", "gpustorages", "gpuunits"), ("get",)),
    Rule((Scope.STOCK,), GROUP, ("stockpools",), ("get",)),
    # Previews are begun and ended.
    Rule((Scope.TENANTS,), GROUP, ("operations/status",), ("patch",)),
)
