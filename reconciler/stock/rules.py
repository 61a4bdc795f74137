"""What the stock controller may do in Kubernetes."""

from gpu_platform.domain.names import GROUP
from gpu_platform.domain.rbac import UNIT_SCOPES, Rule, Scope

RULES = (
    Rule((Scope.STOCK,), GROUP, ("gpuunits",), ("create", "delete", "manage")),
    # Also where no pool belongs: one that was made there is told so.
    Rule(UNIT_SCOPES, GROUP, ("stockpools/status",), ("patch",)),
    Rule(UNIT_SCOPES, GROUP, ("stockpools",), ("manage",)),
    # Its units block their pool's deletion, which some clusters allow only to those who may hold it up anyway.
    Rule((Scope.STOCK,), GROUP, ("stockpools/finalizers",), ("update",)),
)
