"""What NATS believes: tokens (JWT, version 2) in which an operator vouches for accounts and an account for users.

Pure: keys and the time come in. The server needs the operator's and the accounts' tokens once, in its configuration;
users bring theirs along, so that a new one needs no change of the server.
"""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cryptography.hazmat.primitives import hashes

from gpu_platform.domain.queue_keys import (
    KeyFormError,
    KeyRole,
    build_seed,
    check_public_key,
    public_key_of,
    read_seed,
    sign,
)
from gpu_platform.nats.permissions import WORKERS_JETSTREAM, Permissions, Shared, sidecar_permissions

Claims = dict[str, Any]

HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
VERSION = 2
UNLIMITED = -1
JETSTREAM_TAG = "jetstream:"
"""Of a user: where its account has JetStream's API. The servers do not look at it."""

CREDENTIALS = """\
-----BEGIN NATS USER JWT-----
{token}
------END NATS USER JWT------

************************* IMPORTANT *************************
The seed below is a secret: whoever has it is this user.

-----BEGIN USER NKEY SEED-----
{seed}
------END USER NKEY SEED------
"""
PARTS = re.compile(r"-{3,}BEGIN [^-]+-{3,}\s*([A-Za-z0-9._-]+?)\s*-{3,}END [^-]+-{3,}")


class CredentialsFormError(ValueError):
    """What is no credentials file. The message shows nothing of it."""


@dataclass(frozen=True)
class Credentials:
    """Of a user: its token, and the key that proves that it is the one in there."""

    token: str
    seed: str

    @property
    def account(self) -> str:
        """The public key of the account that it belongs to."""
        claims = read_claims(self.token)
        return str(claims["nats"].get("issuer_account") or claims["iss"])

    @property
    def jetstream_prefix(self) -> str | None:
        """Where its account has JetStream's API; None for the usual place."""
        tags = read_claims(self.token)["nats"].get("tags") or ()
        return next((tag.removeprefix(JETSTREAM_TAG) for tag in tags if tag.startswith(JETSTREAM_TAG)), None)

    def render(self) -> str:
        """The text of a `.creds` file, as every client of NATS reads it."""
        return CREDENTIALS.format(token=self.token, seed=self.seed)


def build_operator(seed: str, name: str, system_account: str, now: datetime) -> str:
    return _token(seed, public_key_of(seed), name, "operator", {"system_account": system_account}, now)


def build_account(
    operator_seed: str,
    account: str,
    name: str,
    now: datetime,
    *,
    exports: Sequence[Claims] = (),
    imports: Sequence[Claims] = (),
    jetstream: bool = False,
) -> str:
    """`account` is a public key."""
    check_public_key(account, KeyRole.ACCOUNT)
    limits: Claims = {
        **dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), UNLIMITED),
        "wildcards": True,
    }
    if jetstream:
        limits |= dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), UNLIMITED)
    claims: Claims = {"limits": limits, "default_permissions": {"pub": {}, "sub": {}}}
    if exports:
        claims["exports"] = list(exports)
    if imports:
        claims["imports"] = list(imports)
    return _token(operator_seed, account, name, "account", claims, now)


def build_export(shared: Shared) -> Claims:
    kind = "Stream" if shared.many_answers else "Singleton"
    return {"name": shared.subject, "subject": shared.subject, "type": "service", "response_type": kind}


def build_import(shared: Shared, account: str) -> Claims:
    """From the account with this public key."""
    return {
        "name": shared.subject,
        "subject": shared.subject,
        "account": account,
        "local_subject": shared.local_subject,
        "type": "service",
    }


def build_user(
    account_seed: str,
    user: str,
    name: str,
    permissions: Permissions,
    now: datetime,
    lifetime: timedelta | None = None,
    tags: Sequence[str] = (),
) -> str:
    """`account_seed` signs; `user` is a public key."""
    _account_seed(account_seed)
    check_public_key(user, KeyRole.USER)
    claims: Claims = {
        "pub": {"allow": list(permissions.publish)},
        "sub": {"allow": list(permissions.subscribe)},
        **dict.fromkeys(("subs", "data", "payload"), UNLIMITED),
    }
    if tags:
        claims["tags"] = list(tags)
    return _token(account_seed, user, name, "user", claims, now, lifetime)


def mint_sidecar(
    signing_seed: str, tenant: str, function: str, now: datetime, lifetime: timedelta | None = None
) -> str:
    """The `.creds` text of a function's workers; `signing_seed` is that of the workers' account.

    The user's key follows from the account's, so that the same question has the same answer; whoever has that key can
    make users anyway.
    """
    purpose = f"sidecar/{tenant}/{function}/{now.isoformat()}"
    raw = hmac.new(_account_seed(signing_seed), purpose.encode(), hashlib.sha256).digest()
    seed = build_seed(KeyRole.USER, raw)
    permissions = sidecar_permissions(tenant, function)
    name = f"sidecar {tenant}/{function}"
    tags = (f"{JETSTREAM_TAG}{WORKERS_JETSTREAM}",)
    token = build_user(signing_seed, public_key_of(seed), name, permissions, now, lifetime, tags)
    return Credentials(token, seed).render()


def parse_credentials(text: str) -> Credentials:
    """CredentialsFormError: not such a file, or the key is not the one that the token is about."""
    parts = PARTS.findall(text)
    if len(parts) != 2:
        raise CredentialsFormError("should hold a user's token and its seed, each between BEGIN and END")
    credentials = Credentials(*parts)
    try:
        claims = read_claims(credentials.token)
        if claims.get("sub") != public_key_of(credentials.seed):
            raise CredentialsFormError("the seed in it is not that of the user in its token")
    except KeyFormError as error:
        raise CredentialsFormError(f"the seed in it is {error}") from error
    return credentials


def read_claims(token: str) -> Mapping[str, Any]:
    """Without a look at the signature: the server looks."""
    try:
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        if isinstance(claims, dict) and isinstance(claims.get("nats"), dict):
            return claims
    except (IndexError, ValueError):
        pass
    raise CredentialsFormError("the token in it is not one of NATS")


def _account_seed(text: str) -> bytes:
    role, raw = read_seed(text)
    if role is not KeyRole.ACCOUNT:
        raise KeyFormError(f"users are signed with an account's key; this one is for the role {role.name.lower()}")
    return raw


def _token(
    issuer_seed: str,
    subject: str,
    name: str,
    kind: str,
    claims: Claims,
    now: datetime,
    lifetime: timedelta | None = None,
) -> str:
    body: Claims = {
        "iat": int(now.timestamp()),
        "iss": public_key_of(issuer_seed),
        "name": name,
        "sub": subject,
        "nats": {**claims, "type": kind, "version": VERSION},
    }
    if lifetime is not None:
        body["exp"] = int((now + lifetime).timestamp())
    body["jti"] = _identity_of(body)
    signed = f"{_part(HEADER)}.{_part(body)}"
    return f"{signed}.{_base64(sign(issuer_seed, signed.encode()))}"


def _identity_of(body: Claims) -> str:
    """Of a token, the hash of what it says."""
    digest = hashes.Hash(hashes.SHA512_256())
    digest.update(_json(body))
    return base64.b32encode(digest.finalize()).decode().rstrip("=")


def _part(value: Claims | dict[str, str]) -> str:
    return _base64(_json(value))


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
