"""The keys that are known: read from their Secret again and again, so that a revoked one is refused within seconds."""

import asyncio
import base64
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.tenants import (
    DEFAULT_TENANT,
    KEYS_SECRET,
    TENANT_NAME,
    KeyRecord,
    Role,
    find_undeclared,
    granted_roles,
    opens,
    split_key,
    tenant_namespace,
)
from gpu_platform.kube import KubeClient, KubeError, NotFoundError
from gpu_platform.kube.paths import SECRETS

log = logging.getLogger(__name__)


INTERVAL = 2.0


@dataclass(frozen=True)
class Caller:
    """Whoever sent the request."""

    tenant: str
    roles: frozenset[Role]
    key_id: str

    @property
    def namespace(self) -> str:
        return tenant_namespace(self.tenant)


EVERYBODY = Caller(DEFAULT_TENANT, frozenset({Role.ADMIN}), "none")
"""The caller where `auth` is none."""


class KeyRing:
    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._records: Mapping[str, KeyRecord] = {}
        self._warned: set[str] = set()
        self.is_read = False

    def find_caller(self, key: str) -> Caller | None:
        """Whose key this is; None for a wrong, unknown, revoked or expired one, without saying which."""
        parts = split_key(key)
        record = self._records.get(parts[0]) if parts else None
        if parts is None or record is None or not opens(record, parts[1], self._now()):
            return None
        return Caller(record.tenant, granted_roles(record), parts[0])

    def knows(self, caller: Caller) -> bool:
        """Whether the key with which somebody came in is still good."""
        record = self._records.get(caller.key_id)
        is_expired = record is not None and record.expires_at is not None and record.expires_at <= self._now()
        return caller is EVERYBODY or (record is not None and not is_expired)

    def take(self, records: Mapping[str, KeyRecord]) -> None:
        self._records = records
        self.is_read = True
        self._warn_of_undeclared()

    def _warn_of_undeclared(self) -> None:
        """Once per key, not every two seconds."""
        if keys := [key_id for key_id in find_undeclared(self._records) if key_id not in self._warned]:
            self._warned.update(keys)
            advice = 'add "platform": true to their records, or remove the roles operator and admin'
            log.warning("keys.platform-undeclared", extra={"keys": keys, "secret": KEYS_SECRET, "advice": advice})

    async def follow(self, client: KubeClient) -> None:
        """For ever. While Kubernetes is away, the keys are those that were last read."""
        while True:
            try:
                self.take(read_records(await client.get(SECRETS.item(KEYS_SECRET, names.SYSTEM_NAMESPACE))))
            except NotFoundError:
                self.take({})
            except KubeError as error:
                log.debug("keys.unread", extra={"error": str(error)})
            await asyncio.sleep(INTERVAL)


def read_records(secret: Json) -> dict[str, KeyRecord]:
    """An entry that cannot be read opens nothing, and takes no other key with it."""
    records = {}
    for key_id, encoded in (secret.get("data") or {}).items():
        try:
            records[key_id] = _read_record(encoded)
        except (ValidationError, ValueError):
            log.warning("keys.unreadable", extra={"key": key_id})
    return records


def _read_record(encoded: str) -> KeyRecord:
    record = KeyRecord.model_validate(json.loads(base64.b64decode(encoded)))
    if not TENANT_NAME.fullmatch(record.tenant):
        # It becomes part of a path, where `..` would mean something else.
        raise ValueError(f"{record.tenant!r} is no tenant's name")
    return record
