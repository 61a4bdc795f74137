"""What the drift controller may do in Kubernetes."""

from gpu_platform.domain.names import GROUP
from gpu_platform.domain.rbac import UNIT_SCOPES, Rule, Scope

RULES = (
    # The accepted spec is put back.
    Rule((Scope.TENANTS,), GROUP, ("gpufunctions", "gpustorages", "gpuunits"), ("update",)),
    Rule((Scope.STOCK,), GROUP, ("stockpools",), ("update",)),
    # A repeated Event is found by its name and counted up.
    Rule(UNIT_SCOPES, "", ("events",), ("get", "create", "patch")),
)
