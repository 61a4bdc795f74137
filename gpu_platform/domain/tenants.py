"""Tenants, their roles, and API keys. A tenant is a namespace: what it owns lives there, and nothing of it lives
anywhere else. A key is `gk_<id>_<secret>`; only the id and a hash of the secret are ever stored."""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field

from gpu_platform.domain.names import DEFAULT_INSTANCE_NAMESPACE, INSTANCE_NAMESPACE_PREFIX
from gpu_platform.domain.value import Value

DEFAULT_TENANT = "default"
TENANT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")

KEYS_SECRET = "gpu-platform-api-keys"  # noqa: S105 - an object's name
"""In the system namespace: one entry per key, its id to its record as JSON."""

KEY_FORM = re.compile(r"gk_([a-z0-9]{8})_([A-Za-z0-9_-]{43})")
ID_BYTES = 4
SECRET_BYTES = 32


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


class KeyRecord(Value):
    """What is known of a key."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    tenant: str
    """Whose objects the key's owner sees and changes."""

    roles: tuple[Role, ...]
    expires_at: AwareDatetime | None = None
    platform: bool | None = None
    """Whether this is a platform key, the only kind of key that can be an operator's or an administrator's. None: the
    record does not say, as no record did when every key could be one."""

    @property
    def platform_roles(self) -> tuple[Role, ...]:
        return tuple(sorted(PLATFORM_ROLES.intersection(self.roles)))


def granted_roles(record: KeyRecord) -> frozenset[Role]:
    """Returns the roles that the key has.

    | `platform`         | viewer, invoker, editor | operator, admin                                  |
    | ------------------ | ----------------------- | ------------------------------------------------ |
    | true               | yes                     | yes                                              |
    | false              | yes                     | no                                               |
    | absent: old record | yes                     | yes, in this release; `find_undeclared` finds it |
    """
    roles = frozenset(record.roles)
    return roles - PLATFORM_ROLES if record.platform is False else roles


def find_undeclared(records: Mapping[str, KeyRecord]) -> tuple[str, ...]:
    """Returns the ids of the keys that have platform roles and do not say that they are platform keys. The next release
    refuses them what only a platform key may do."""
    return tuple(
        sorted(key_id for key_id, record in records.items() if record.platform is None and record.platform_roles)
    )


def draw_key_parts(draw: Callable[[int], bytes]) -> tuple[str, str]:
    """Id and secret of a new key. `draw` gives as many random bytes."""
    return draw(ID_BYTES).hex(), base64.urlsafe_b64encode(draw(SECRET_BYTES)).rstrip(b"=").decode()


def build_key(key_id: str, secret: str) -> str:
    return f"gk_{key_id}_{secret}"


def split_key(text: str) -> tuple[str, str] | None:
    """Id and secret, or None for what is no key."""
    match = KEY_FORM.fullmatch(text)
    return (match[1], match[2]) if match else None


def hash_secret(secret: str) -> str:
    """The secret has 256 random bits: a slow hash would add nothing."""
    return hashlib.sha256(secret.encode()).hexdigest()


def opens(record: KeyRecord, secret: str, now: datetime) -> bool:
    is_right = hmac.compare_digest(record.sha256, hash_secret(secret))
    return is_right and (record.expires_at is None or now < record.expires_at)
