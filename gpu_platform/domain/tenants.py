"""Tenants. A tenant is a namespace: what it owns lives there, and nothing of it lives anywhere else."""

import re
from enum import StrEnum

from gpu_platform.domain.names import DEFAULT_INSTANCE_NAMESPACE, INSTANCE_NAMESPACE_PREFIX

DEFAULT_TENANT = "default"
TENANT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


class Role(StrEnum):
    """What a caller may do. One key may have several."""

    VIEWER = "viewer"
    """See the tenant's things."""

    INVOKER = "invoker"
    """Call the tenant's functions."""

    EDITOR = "editor"
    """Make, change and delete the tenant's things, see them, and call its units."""

    OPERATOR = "operator"
    """Stock, pools, inventory: the platform, not the tenants' things."""

    ADMIN = "admin"
    """Everything."""


IMPLIED = {
    Role.VIEWER: frozenset({Role.VIEWER}),
    Role.INVOKER: frozenset({Role.INVOKER}),
    Role.EDITOR: frozenset({Role.EDITOR, Role.VIEWER, Role.INVOKER}),
    Role.OPERATOR: frozenset({Role.OPERATOR}),
    Role.ADMIN: frozenset(Role),
}


def tenant_namespace(tenant: str) -> str:
    return DEFAULT_INSTANCE_NAMESPACE if tenant == DEFAULT_TENANT else f"{INSTANCE_NAMESPACE_PREFIX}{tenant}"


def tenant_of(namespace: str) -> str | None:
    """The tenant whose namespace this is; None where no tenant's things live."""
    if namespace == DEFAULT_INSTANCE_NAMESPACE:
        return DEFAULT_TENANT
    tenant = namespace.removeprefix(INSTANCE_NAMESPACE_PREFIX)
    return tenant if tenant != namespace and TENANT_NAME.fullmatch(tenant) else None


def may(roles: frozenset[Role], needed: frozenset[Role]) -> bool:
    """Whether somebody with these roles may do what any of the needed ones may."""
    return any(IMPLIED[role] & needed for role in roles)
