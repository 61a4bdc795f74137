"""What the orphans controller may do in Kubernetes."""

from gpu_platform.domain.names import GROUP
from gpu_platform.domain.rbac import UNIT_SCOPES, Rule, Scope

RULES = (
    Rule((Scope.STOCK,), GROUP, ("gpuunits",), ("patch", "manage")),
    Rule(UNIT_SCOPES, "apps", ("deployments",), ("delete",)),
    Rule(UNIT_SCOPES, "networking.k8s.io", ("ingresses", "networkpolicies"), ("delete",)),
    Rule(UNIT_SCOPES, "gateway.networking.k8s.io", ("httproutes",), ("delete",)),
    Rule(UNIT_SCOPES, "", ("configmaps", "services"), ("delete",)),
)
