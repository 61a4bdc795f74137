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
    """Stock, pools, inventory: the platform, not the tenants' things. Of platform keys only."""

    ADMIN = "admin"
    """Everything: an operator, and an editor of the key's own tenant. Of platform keys only."""


PLATFORM_ROLES = frozenset({Role.OPERATOR, Role.ADMIN})
"""Roles that act on the whole platform."""


IMPLIED = {
    Role.VIEWER: frozenset({Role.VIEWER}),
    Role.INVOKER: frozenset({Role.INVOKER}),
    Role.EDITOR: frozenset({Role.EDITOR, Role.VIEWER, Role.INVOKER}),
    Role.OPERATOR: frozenset({Role.OPERATOR}),
    Role.ADMIN: frozenset(Role),
}


def tenant_namespace(tenant: str) -> str:
    """Returns the tenant's one namespace; `tenant_of` is its inverse."""
    return DEFAULT_INSTANCE_NAMESPACE if tenant == DEFAULT_TENANT else f"{INSTANCE_NAMESPACE_PREFIX}{tenant}"


def tenant_of(namespace: str) -> str | None:
    """Returns the tenant whose namespace this is; None for a namespace that is no tenant's.

    | namespace                       | tenant                                                            |
    | ------------------------------- | ----------------------------------------------------------------- |
    | `runtime-instance`              | `default`                                                         |
    | `runtime-instance-default`      | none: the tenant `default` has one namespace, as every other has  |
    | `runtime-instance-<name>`       | that name, if it is one that a tenant can have                    |
    | any other                       | none                                                              |
    """
    if namespace == DEFAULT_INSTANCE_NAMESPACE:
        return DEFAULT_TENANT
    tenant = namespace.removeprefix(INSTANCE_NAMESPACE_PREFIX)
    is_tenant = tenant not in (namespace, DEFAULT_TENANT) and TENANT_NAME.fullmatch(tenant) is not None
    return tenant if is_tenant else None


def may(roles: frozenset[Role], needed: frozenset[Role]) -> bool:
    """Whether somebody with these roles may do what any of the needed ones may."""
    return any(IMPLIED[role] & needed for role in roles)
