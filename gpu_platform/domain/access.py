"""What a process may do in Kubernetes. Each part declares its rules beside its code; `infra` makes Roles of them.

There is no way to say "everything": what cannot be written down here cannot be granted by accident.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete"]

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
