"""What a process may do in Kubernetes. Each part declares its rules beside its code; `infra` makes Roles of them.

There is no way to say "everything": what cannot be written down here cannot be granted by accident.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from gpu_platform.domain.names import SYSTEM_NAMESPACE

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete", "manage"]
"""`manage` is a verb of ours: it allows to write what only the platform writes in its custom resources (annotations,
labels and finalizers of its own, status, Operations). An admission policy of `infra` asks for it."""

MANAGE: Verb = "manage"

API_ACCOUNT = "gpu-platform-api"
RECONCILER_ACCOUNT = "gpu-platform-reconciler"
STACK_WORKER_ACCOUNT = "gpu-platform-stack-worker"
"""ServiceAccounts in the system namespace."""

ACCOUNTS = (API_ACCOUNT, RECONCILER_ACCOUNT, STACK_WORKER_ACCOUNT)

NAMED_VERBS = frozenset({"get", "update", "patch", "delete"})
"""Verbs that are about one object, so that a rule can say which. RBAC knows no names in the others."""


class Scope(StrEnum):
    """Where a rule holds."""

    CLUSTER = "cluster"
    """Everywhere, and for kinds without a namespace."""

    SYSTEM = "system"
    """The platform's own namespace."""

    STOCK = "stock"
    TENANTS = "tenants"
    """The namespace of each tenant, and no other."""


def account_user(account: str) -> str:
    """The name under which Kubernetes knows a ServiceAccount of the platform."""
    return f"system:serviceaccount:{SYSTEM_NAMESPACE}:{account}"


def account_groups() -> tuple[str, ...]:
    """The groups of every ServiceAccount of the platform, but for `system:authenticated`, which the API server adds."""
    return "system:serviceaccounts", f"system:serviceaccounts:{SYSTEM_NAMESPACE}"


UNIT_SCOPES = (Scope.STOCK, Scope.TENANTS)
"""Where units live."""


@dataclass(frozen=True)
class Rule:
    scopes: tuple[Scope, ...]
    group: str
    """The API group; empty for Kubernetes' own core."""

    resources: tuple[str, ...]
    verbs: tuple[Verb, ...]
    names: tuple[str, ...] = ()
    """Only these objects; empty for all of them."""

    def __post_init__(self) -> None:
        said = (*self.scopes, self.group, *self.resources, *self.verbs, *self.names)
        if any("*" in word for word in said):
            raise ValueError(f"a rule names what it is about, and has no '*': {self}")
        if not (self.scopes and self.resources and self.verbs):
            raise ValueError(f"a rule without a place, a resource or a verb grants nothing: {self}")
        if self.names and not NAMED_VERBS.issuperset(self.verbs):
            raise ValueError(f"a rule with names can only have the verbs {sorted(NAMED_VERBS)}: {self}")
        if "secrets" in self.resources and not self.names and not self._is_about_known_secrets:
            raise ValueError(f"a rule about secrets names each of them: {self}")

    @property
    def _is_about_known_secrets(self) -> bool:
        """Where tenants come and go nobody knows the names beforehand. Who may not list has to know them then."""
        return self.scopes == (Scope.TENANTS,) and {"list", "watch"}.isdisjoint(self.verbs)
