"""API keys: `gk_<id>_<secret>`. Only the id and a hash of the secret are ever stored."""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, Field

from gpu_platform.domain.tenants import PLATFORM_ROLES, Role
from gpu_platform.domain.value import Value

KEYS_SECRET = "gpu-platform-api-keys"  # noqa: S105 - an object's name
"""In the system namespace: one entry per key, its id to its record as JSON."""

KEY_FORM = re.compile(r"gk_([a-z0-9]{8})_([A-Za-z0-9_-]{43})")

ID_BYTES = 4
SECRET_BYTES = 32


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
