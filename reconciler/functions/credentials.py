"""What a function's workers show to NATS: a Secret that only their sidecars see, renewed long before it ends."""

import base64
import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of, find_instant
from gpu_platform.kube.paths import SECRETS
from gpu_platform.kube.requests import ObjectClient, find
from gpu_platform.nats.credentials import KeyFormError, KeyRole, check_public_key, mint_sidecar, public_key_of
from gpu_platform.nats.permissions import sidecar_permissions
from reconciler.guarded_writes import CreateObject, ReplaceObject, apply_write
from reconciler.units.serverless_resources import AUTHORITY_FILE, CREDENTIALS_FILE

ANNOTATION_MINTED_AT = f"{names.GROUP}/minted-at"
ANNOTATION_MINTED_FOR = f"{names.GROUP}/minted-for"

LIFETIME = timedelta(days=30)
RENEWAL = LIFETIME / 3
"""Old enough to be made anew: NATS may be away, or this process, for two thirds of the lifetime."""


class CredentialsError(Exception):
    """The workers cannot be given credentials. The message says what to mend."""


@dataclass(frozen=True)
class Signer:
    """What credentials are made with. The files are read each time: they may be replaced."""

    signing_key: Path | None
    """Of the workers' account."""

    authority: Path | None

    @property
    def has_content(self) -> bool:
        """Whether there is anything that a worker has to be given."""
        return self.signing_key is not None or self.authority is not None

    def read(self) -> "Signing":
        """CredentialsError: a file is missing, or is not what it should be."""
        authority = _read("natsCA", self.authority) if self.authority else None
        if self.signing_key is None:
            return Signing(None, authority)
        try:
            seed = _read("natsSigningKey", self.signing_key).strip()
            check_public_key(public_key_of(seed), KeyRole.ACCOUNT)
        except KeyFormError as error:
            raise CredentialsError(f"natsSigningKey {self.signing_key}: {error}") from error
        return Signing(seed, authority)


@dataclass(frozen=True)
class Signing:
    seed: str | None
    authority: str | None

    def purpose_of(self, tenant: str, function: str) -> str:
        """What the Secret's content depends on, besides the time: with another, it is made anew."""
        permissions = sidecar_permissions(tenant, function)
        key = public_key_of(self.seed) if self.seed else None
        return hashlib.sha256(repr((key, permissions, self.authority)).encode()).hexdigest()[:16]


def plan_secret(
    function: Json, tenant: str, live: Json | None, signing: Signing, now: datetime
) -> CreateObject | ReplaceObject | None:
    """CredentialsError when the name is taken.

    | the Secret of the name                            | →                              |
    | ------------------------------------------------- | ------------------------------ |
    | none                                              | create                         |
    | another's, or of an earlier function of this name | CredentialsError               |
    | ours, made for other keys or rights               | replace                        |
    | ours, a third of its time has passed              | replace                        |
    | ours, as it should be                             | nothing                        |
    """
    metadata = function["metadata"]
    purpose = signing.purpose_of(tenant, metadata["name"])
    if live is None:
        return CreateObject("Secret", _build_secret(function, tenant, signing, purpose, now))
    owners = [owner["uid"] for owner in live["metadata"].get("ownerReferences") or []]
    if metadata["uid"] not in owners:
        raise CredentialsError(f"the Secret {live['metadata']['name']} is not of this function: it has to go first")
    said = annotations_of(live)
    minted_at = find_instant(live, ANNOTATION_MINTED_AT, now)
    if said.get(ANNOTATION_MINTED_FOR) == purpose and minted_at is not None and now - minted_at < RENEWAL:
        return None
    body = _build_secret(function, tenant, signing, purpose, now)
    kept = {key: live["metadata"][key] for key in ("uid", "resourceVersion")}
    return ReplaceObject("Secret", {**body, "metadata": {**body["metadata"], **kept}})


async def ensure_secret(client: ObjectClient, function: Json, tenant: str, signer: Signer, now: datetime) -> None:
    if not signer.has_content:
        return
    namespace = function["metadata"]["namespace"]
    name = names.function_secret(function["metadata"]["name"])
    live = await find(client, SECRETS, name, namespace)
    write = plan_secret(function, tenant, live, signer.read(), now)
    if write is not None:
        await apply_write(write, client)


def _build_secret(function: Json, tenant: str, signing: Signing, purpose: str, now: datetime) -> Json:
    metadata = function["metadata"]
    content = {}
    if signing.seed:
        content[CREDENTIALS_FILE] = mint_sidecar(signing.seed, tenant, metadata["name"], now, LIFETIME)
    if signing.authority:
        content[AUTHORITY_FILE] = signing.authority
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": names.function_secret(metadata["name"]),
            "namespace": metadata["namespace"],
            "labels": {
                names.LABEL_MANAGED_BY: names.MANAGED_BY_VALUE,
                names.LABEL_FUNCTION: metadata["name"],
            },
            "annotations": {ANNOTATION_MINTED_AT: now.isoformat(), ANNOTATION_MINTED_FOR: purpose},
            "ownerReferences": [names.owner_reference("GPUFunction", metadata["name"], metadata["uid"])],
        },
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in content.items()},
    }


def _read(setting: str, file: Path) -> str:
    try:
        return file.read_text()
    except OSError as error:
        raise CredentialsError(f"{setting} {file}: {error.strerror or error}") from error
