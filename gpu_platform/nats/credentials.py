"""The keys of NATS ("nkeys", Ed25519), the tokens that are signed with them (JWT, version 2), and the keyring of one
installation, of which the server's block and all credentials are made. Pure: random bytes and the time come in.

| role     | public key | seed (secret) | signs                                  |
| -------- | ---------- | ------------- | -------------------------------------- |
| operator | `O…`       | `SO…`         | what accounts there are                |
| account  | `A…`       | `SA…`         | users; a signing key is one of these   |
| user     | `U…`       | `SU…`         | the server's challenge at a connection |

In a token, an operator vouches for accounts and an account for users. The server needs the operator's and the accounts'
tokens once, in its configuration; users bring theirs along, so that a new one needs no change of the server.

The keys last; tokens are made of them as often as one likes. A new version of the platform that needs other rights gets
them with new credentials of the same users.
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any, Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gpu_platform.nats.permissions import (
    SHARED,
    WORKERS_JETSTREAM,
    Permissions,
    QueueUser,
    Shared,
    permissions_of,
    sidecar_permissions,
)

SEED = 18 << 3
RAW_BYTES = 32
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
OPERATOR = "gpu-platform"
ACCOUNT = "PLATFORM"
WORKERS_ACCOUNT = "WORKERS"
SYSTEM_ACCOUNT = "SYSTEM"


class KeyRole(IntEnum):
    """The value is the first byte, which base32 shows as the letter."""

    ACCOUNT = 0
    OPERATOR = 14 << 3
    USER = 20 << 3


class KeyFormError(ValueError):
    """What is no key. The message never shows it: it may be a secret with one wrong letter."""


def build_seed(role: KeyRole, raw: bytes) -> str:
    """Of 32 random bytes, which are the secret itself."""
    if len(raw) != RAW_BYTES:
        raise KeyFormError(f"a key is made of {RAW_BYTES} bytes, not of {len(raw)}")
    # Both first letters come out of the first ten bits.
    return _encode(bytes([SEED | role >> 5, (role & 31) << 3]) + raw)


def read_seed(text: str) -> tuple[KeyRole, bytes]:
    data = _decode(text)
    if len(data) != RAW_BYTES + 2 or data[0] & 0b1111_1000 != SEED:
        raise KeyFormError("not a seed of NATS; it begins with S")
    return _role_of((data[0] & 0b111) << 5 | data[1] >> 3), data[2:]


def public_key_of(seed: str) -> str:
    role, raw = read_seed(seed)
    return _encode(bytes([role]) + Ed25519PrivateKey.from_private_bytes(raw).public_key().public_bytes_raw())


def read_public_key(text: str) -> tuple[KeyRole, bytes]:
    data = _decode(text)
    if len(data) != RAW_BYTES + 1:
        raise KeyFormError("not a public key of NATS")
    return _role_of(data[0]), data[1:]


def check_public_key(text: str, role: KeyRole) -> None:
    found, _ = read_public_key(text)
    if found is not role:
        raise KeyFormError(f"{text} is a key for the role {found.name.lower()}, not {role.name.lower()}")


def sign(seed: str, data: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(read_seed(seed)[1]).sign(data)


def _role_of(number: int) -> KeyRole:
    try:
        return KeyRole(number)
    except ValueError as error:
        raise KeyFormError("a key of NATS, but not of an operator, an account or a user") from error


def _encode(data: bytes) -> str:
    checksum = binascii.crc_hqx(data, 0).to_bytes(2, "little")
    return base64.b32encode(data + checksum).decode().rstrip("=")


def _decode(text: str) -> bytes:
    try:
        data = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError as error:
        raise KeyFormError("not a key of NATS: it has letters that no key has") from error
    body, checksum = data[:-2], data[-2:]
    if len(data) <= len(checksum) or binascii.crc_hqx(body, 0).to_bytes(2, "little") != checksum:
        raise KeyFormError("not a key of NATS: its checksum is wrong, so some of it is missing or mistyped")
    return body


class CredentialsFormError(ValueError):
    """What is no credentials file. The message shows nothing of it."""


@dataclass(frozen=True)
class Credentials:
    """Of a user: its token, and the key that proves that it is the one in there."""

    token: str
    seed: str

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


class KeyringError(ValueError):
    """What is no ring of keys. The message shows none of them."""


@dataclass(frozen=True)
class Keyring:
    """Seeds, every one of them a secret."""

    operator: str
    """Can make everything else anew. No process needs it."""

    system: str
    account: str
    """Has the streams, and signs the platform's own users."""

    workers: str
    """Signs the users of the functions' workers. The reconciler has it; it opens nothing that no worker may do."""

    users: Mapping[QueueUser, str]

    @classmethod
    def new(cls, draw: Callable[[int], bytes]) -> Self:
        """`draw` gives as many random bytes."""

        def seed(role: KeyRole) -> str:
            return build_seed(role, draw(32))

        return cls(
            operator=seed(KeyRole.OPERATOR),
            system=seed(KeyRole.ACCOUNT),
            account=seed(KeyRole.ACCOUNT),
            workers=seed(KeyRole.ACCOUNT),
            users={user: seed(KeyRole.USER) for user in QueueUser},
        )

    def render(self) -> str:
        seeds = {"operator": self.operator, "system": self.system, "account": self.account, "workers": self.workers}
        return json.dumps({**seeds, "users": {str(user): seed for user, seed in self.users.items()}}, indent=2) + "\n"

    def credentials_of(self, user: QueueUser, now: datetime) -> Credentials:
        seed = self.users[user]
        account = self.system if user is QueueUser.SYSTEM else self.account
        token = build_user(account, public_key_of(seed), user, permissions_of(user), now)
        return Credentials(token, seed)

    def render_server(self, now: datetime) -> str:
        """The block of a server's configuration: whom it believes, and which accounts there are."""
        system, account, workers = (public_key_of(seed) for seed in (self.system, self.account, self.workers))
        exports = [build_export(shared) for shared in SHARED]
        imports = [build_import(shared, account) for shared in SHARED]
        return f"""\
operator: {build_operator(self.operator, OPERATOR, system, now)}
system_account: {system}
resolver: MEMORY
resolver_preload: {{
  # {SYSTEM_ACCOUNT}
  {system}: {build_account(self.operator, system, SYSTEM_ACCOUNT, now)}
  # {ACCOUNT}
  {account}: {build_account(self.operator, account, ACCOUNT, now, exports=exports, jetstream=True)}
  # {WORKERS_ACCOUNT}
  {workers}: {build_account(self.operator, workers, WORKERS_ACCOUNT, now, imports=imports)}
}}
"""


def parse_keyring(text: str) -> Keyring:
    try:
        fields: dict[str, Any] = json.loads(text)
        users = {user: fields["users"][user] for user in QueueUser}
        keyring = Keyring(fields["operator"], fields["system"], fields["account"], fields["workers"], users)
        roles = [read_seed(seed)[0] for seed in (keyring.operator, keyring.system, keyring.account, keyring.workers)]
        roles += [read_seed(seed)[0] for seed in users.values()]
    except KeyFormError as error:
        raise KeyringError(str(error)) from error
    except (ValueError, KeyError, TypeError) as error:
        raise KeyringError(f"not the keys of an installation ({type(error).__name__})") from error
    if roles != [KeyRole.OPERATOR, *[KeyRole.ACCOUNT] * 3, *[KeyRole.USER] * len(users)]:
        raise KeyringError("its keys are in the wrong places")
    return keyring
