"""What the reconciler may do in Kubernetes: for all of its controllers, and for each."""

from collections.abc import Iterable, Mapping
from typing import Final

from gpu_platform.domain.names import GROUP
from gpu_platform.domain.rbac import Rule, Scope
from reconciler.drift import rules as drift
from reconciler.functions import rules as functions
from reconciler.operations import rules as operations
from reconciler.orphans import rules as orphans
from reconciler.stock import rules as stock
from reconciler.storages import rules as storages
from reconciler.units import rules as units

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
    "units": units.RULES,
    "storages": storages.RULES,
    "stock": stock.RULES,
    "operations": operations.RULES,
    "orphans": orphans.RULES,
    "drift": drift.RULES,
    "functions": functions.RULES,
}


def rules_of(controllers: Iterable[str]) -> tuple[Rule, ...]:
    """For a reconciler that runs these controllers."""
    return (*SHARED_RULES, *(rule for name in controllers for rule in CONTROLLER_RULES[name]))
