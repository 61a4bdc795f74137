"""The RBAC rules of the reconciler: what all of its controllers share, and what each of them needs besides.

`infra` makes the roles from it. It imports nothing but the domain.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from gpu_platform.domain.names import GROUP
from gpu_platform.domain.rbac import UNIT_SCOPES, Rule, Scope

UNITS_RULES = (
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

TENANTS = (Scope.TENANTS,)

STORAGES_RULES = (
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

STOCK_RULES = (
    Rule((Scope.STOCK,), GROUP, ("gpuunits",), ("create", "delete", "manage")),
    # Also where no pool belongs: one that was made there is told so.
    Rule(UNIT_SCOPES, GROUP, ("stockpools/status",), ("patch",)),
    Rule(UNIT_SCOPES, GROUP, ("stockpools",), ("manage",)),
    # Its units block their pool's deletion, which some clusters allow only to those who may hold it up anyway.
    Rule((Scope.STOCK,), GROUP, ("stockpools/finalizers",), ("update",)),
)

OPERATIONS_RULES = (
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

ORPHANS_RULES = (
    Rule((Scope.STOCK,), GROUP, ("gpuunits",), ("patch", "manage")),
    Rule(UNIT_SCOPES, "apps", ("deployments",), ("delete",)),
    Rule(UNIT_SCOPES, "networking.k8s.io", ("ingresses", "networkpolicies"), ("delete",)),
    Rule(UNIT_SCOPES, "gateway.networking.k8s.io", ("httproutes",), ("delete",)),
    Rule(UNIT_SCOPES, "", ("configmaps", "services"), ("delete",)),
)

DRIFT_RULES = (
    # The accepted spec is put back.
    Rule((Scope.TENANTS,), GROUP, ("gpufunctions", "gpustorages", "gpuunits"), ("update",)),
    Rule((Scope.STOCK,), GROUP, ("stockpools",), ("update",)),
    # A repeated Event is found by its name and counted up.
    Rule(UNIT_SCOPES, "", ("events",), ("get", "create", "patch")),
)

FUNCTIONS_RULES = (
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

LEASE: Final = "gpu-platform-reconciler"

SHARED_RULES = (
    # Its caches follow whole kinds: one watch each, however many tenants there are. Where a cache that is behind would
    # do harm, the API server itself is asked.
    Rule(
        (Scope.CLUSTER,),
        GROUP,
        ("gpufunctions", "gpuspecs", "gpustorages", "gpuunits", "operations", "stockpools"),
        ("get", "list", "watch"),
    ),
    Rule(
        (Scope.CLUSTER,),
        "",
        ("configmaps", "namespaces", "nodes", "persistentvolumeclaims", "pods", "services"),
        ("list", "watch"),
    ),
    Rule((Scope.CLUSTER,), "batch", ("jobs",), ("list", "watch")),
    Rule((Scope.CLUSTER,), "storage.k8s.io", ("storageclasses",), ("list", "watch")),
    Rule((Scope.CLUSTER,), "apps", ("deployments",), ("list", "watch")),
    # Where the API server is: its own addresses are closed to units. Only those in `default` are read.
    Rule((Scope.CLUSTER,), "discovery.k8s.io", ("endpointslices",), ("list", "watch")),
    Rule((Scope.CLUSTER,), "networking.k8s.io", ("ingresses", "networkpolicies"), ("list", "watch")),
    Rule((Scope.CLUSTER,), "gateway.networking.k8s.io", ("httproutes",), ("list", "watch")),
    # The election. Nobody can create by name.
    Rule((Scope.SYSTEM,), "coordination.k8s.io", ("leases",), ("create",)),
    Rule((Scope.SYSTEM,), "coordination.k8s.io", ("leases",), ("get", "update"), names=(LEASE,)),
)

CONTROLLER_RULES: Mapping[str, tuple[Rule, ...]] = {
    "units": UNITS_RULES,
    "storages": STORAGES_RULES,
    "stock": STOCK_RULES,
    "operations": OPERATIONS_RULES,
    "orphans": ORPHANS_RULES,
    "drift": DRIFT_RULES,
    "functions": FUNCTIONS_RULES,
}


def rules_of(controllers: Iterable[str]) -> tuple[Rule, ...]:
    """For a reconciler that runs these controllers."""
    return (*SHARED_RULES, *(rule for name in controllers for rule in CONTROLLER_RULES[name]))
