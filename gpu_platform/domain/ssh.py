"""SSH into a unit: the block that asks for it, what is wrong with one, its public keys, the command that a user pastes,
and the Secrets of its FRP tokens.

```
 ssh (nc) ──► FRP server ◄── frpc ──► SSH server      the last two beside the unit's container
```

The FRP token is in none of the models that are written down: a spec holds its digest, by which the Secret is called.
A unit may have other tokens' Secrets besides the one that its spec names: the annotation `spare-tokens`, by digest.
Every Secret that a change of the unit makes is in the spec or listed there, wherever a process dies.

| the digest          | is listed by                                           | until                         |
| ------------------- | ------------------------------------------------------ | ----------------------------- |
| of a new token      | the API, before it makes the Secret                    | the write of the spec with it |
| of the token before | the API, in the write of the spec with the next token  | its Secret is deleted         |

The reconciler deletes a Secret that neither the spec nor the Deployment names. It marks the digest first: a request
that is still under way with this token then fails at its write of the unit, and begins again.

A public key that the server cannot read locks its owner out without a message, so each is parsed here and refused with
a reason. What would take arithmetic is left to the server: whether a point is on its curve, whether a modulus has two
factors.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import ip_address
from typing import Annotated

from pydantic import Field, SecretStr

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import CLOCK_SKEW, BadMetadata, annotations_of, parse_instant, read_json
from gpu_platform.domain.network import DOMAIN
from gpu_platform.domain.value import RequestError, Value

LENGTH_BYTES = 4
ED25519_BYTES = 32

UNCOMPRESSED = 4
"""The first byte of a point that is written with both coordinates (SEC 1). OpenSSH reads no other."""

COORDINATE_BYTES = {"nistp256": 32, "nistp384": 48, "nistp521": 66}

RSA_BITS = range(1_024, 16_384 + 1)
"""From OpenSSH's RequiredRSASize to the largest number that it reads."""

RSA_EXPONENTS = range(3, 2**64, 2)
"""OpenSSL refuses longer ones with large keys. Real ones are 65537, and seldom smaller."""

PARTS = {
    "ssh-ed25519": 1,
    "ssh-rsa": 2,
    "ecdsa-sha2-nistp256": 2,
    "ecdsa-sha2-nistp384": 2,
    "ecdsa-sha2-nistp521": 2,
    "sk-ssh-ed25519@openssh.com": 2,
    "sk-ecdsa-sha2-nistp256@openssh.com": 3,
}
"""The types that OpenSSH takes today, and how many values each holds besides its name (RFC 4253, 5656 and 8709, and
OpenSSH's PROTOCOL.u2f)."""

Port = Annotated[int, Field(ge=1, le=65_535)]
Host = Annotated[str | None, Field(max_length=253)]

LOWEST_PORT = 1_024
"""The SSH server does not run as root, and lower ports are root's."""

TOKEN_LIMIT = 512

TOKEN_ROUNDS = 20_000
"""5 to 10 ms: cheap for a caller who sends a token, expensive for an attacker who guesses one from its digest. Too much
for an event loop: the API computes digests in a thread."""

TOKEN_SALT = "gpu-platform ssh token"  # noqa: S105 - the beginning of a salt
USERNAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")
TOKEN = re.compile(r"[!-~]*")

SpareTokens = Mapping[str, datetime | None]
"""By digest: since when it is listed; None: marked, and its Secret is being deleted."""

MOST_SPARE = 8
"""Further tokens wait until earlier ones are deleted."""

SPARE_GRACE = timedelta(seconds=15)
"""Before a digest is marked: most requests are over by then."""

LONG_AGO = datetime.fromisoformat("2000-01-01T00:00:00+00:00")
DIGEST = re.compile(r"[0-9a-f]{32}")


class PublicKeyError(Exception):
    """Not a public key. The message says why, without repeating what was sent."""


@dataclass(frozen=True)
class PublicKey:
    type: str
    encoded: str
    comment: str

    @property
    def line(self) -> str:
        return " ".join(part for part in (self.type, self.encoded, self.comment) if part)


def parse_public_key(text: str) -> PublicKey:
    text = text.strip()
    if "PRIVATE KEY" in text:
        raise PublicKeyError("is a private key, which nobody should ever send: make a new pair, and send its .pub file")
    if not text.isprintable():
        raise PublicKeyError("should be one line without control characters")
    type_, _, rest = text.partition(" ")
    encoded, _, comment = rest.strip().partition(" ")
    if type_ not in PARTS:
        raise PublicKeyError(f"should begin with the type of the key, without options: {', '.join(PARTS)}")
    try:
        blob = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise PublicKeyError(f"what follows {type_} is not base64; is the line complete?") from None
    _check_blob(type_, blob)
    return PublicKey(type_, encoded, comment.strip())


def _check_blob(type_: str, blob: bytes) -> None:
    name, *values = _split(blob) or [type_.encode()]
    if name != type_.encode():
        raise PublicKeyError(f"says {type_}, but holds a key of another type")
    if len(values) != PARTS[type_] or not all(values):
        raise _incomplete(type_)
    if type_ == "ssh-rsa":
        _check_rsa(*values)
    elif "ecdsa" in type_:
        _check_point(type_, *values[:2])
    elif len(values[0]) != ED25519_BYTES:
        raise _incomplete(type_)


def _check_rsa(exponent: bytes, modulus: bytes) -> None:
    # The first bit is the sign, and a negative number is none of a key.
    if int.from_bytes(exponent, signed=True) not in RSA_EXPONENTS:
        raise PublicKeyError("holds an RSA key with an exponent that the server does not take; make a new pair")
    bits = int.from_bytes(modulus).bit_length() if int.from_bytes(modulus, signed=True) > 0 else 0
    if bits not in RSA_BITS:
        limits = f"{RSA_BITS[0]} to {RSA_BITS[-1]}"
        raise PublicKeyError(f"holds an RSA key of {bits} bits, and the server takes {limits}; make a new pair")


def _check_point(type_: str, curve: bytes, point: bytes) -> None:
    wanted = type_.removeprefix("sk-").removeprefix("ecdsa-sha2-").removesuffix("@openssh.com")
    if curve != wanted.encode():
        raise PublicKeyError(f"says {type_}, but holds a point of another curve")
    if len(point) != 1 + 2 * COORDINATE_BYTES[wanted] or point[0] != UNCOMPRESSED:
        raise _incomplete(type_)


def _incomplete(type_: str) -> PublicKeyError:
    return PublicKeyError(f"holds no complete {type_} key; is the line complete?")


def _split(blob: bytes) -> list[bytes]:
    """The values, each with its length before it."""
    values = []
    while blob:
        end = LENGTH_BYTES + int.from_bytes(blob[:LENGTH_BYTES])
        if len(blob) < LENGTH_BYTES or len(blob) < end:
            raise PublicKeyError("ends in the middle of the key; is the line complete?")
        values.append(blob[LENGTH_BYTES:end])
        blob = blob[end:]
    return values


class SshContainer(StrEnum):
    """What runs beside the unit's own container."""

    SERVER = "ssh-server"
    CLIENT = "ssh-frpc"


class SshPhase(StrEnum):
    PENDING = "Pending"
    READY = "Ready"
    FAILED = "Failed"


class SshBlock(Value):
    """A way into the unit by SSH, through an FRP server that multiplexes by domain (`tcpmux`, `httpconnect`)."""

    enabled: Annotated[bool, Field(description="Without it, the rest of the block means nothing.")] = False
    username: Annotated[str, Field(max_length=64, description="Who logs in.")] = "runtime"
    authorized_keys: Annotated[
        tuple[Annotated[str, Field(max_length=8_192)], ...],
        Field(max_length=64, description="Public keys that may log in, as in `authorized_keys`."),
    ] = ()
    port: Annotated[
        int, Field(ge=LOWEST_PORT, le=65_535, description="Where the SSH server listens inside the unit.")
    ] = 2_222
    server_addr: Annotated[Host, Field(description="The FRP server: a name or an address.")] = None
    server_port: Annotated[Port, Field(description="Where it takes clients.")] = 7_000
    connect_host: Annotated[Host, Field(description="Where users reach it, if not at `serverAddr`.")] = None
    connect_port: Annotated[Port, Field(description="Where it takes users, by HTTP CONNECT.")] = 1_337
    domain_suffix: Annotated[
        str | None,
        Field(max_length=150, description="The unit is `<unit>.<namespace>.<domainSuffix>` to the FRP server."),
    ] = None
    client_domain: Annotated[Host, Field(description="What it is to the FRP server instead.")] = None
    client_name: Annotated[
        str | None, Field(max_length=128, description="Of the FRP proxy, if not `ssh-<namespace>-<unit>`.")
    ] = None


class Ssh(SshBlock):
    """SSH as it was accepted."""

    token_hash: Annotated[
        str | None,
        Field(pattern=r"^[0-9a-f]{32}$", description="Digest of the FRP token, by which its Secret is called."),
    ] = None


class SshWish(SshBlock):
    """SSH as it is asked for. Said again, it replaces what was; `{"enabled": false}` takes it away."""

    enabled: Annotated[bool, Field(description="False takes SSH away; the rest of the block means nothing then.")]
    token: Annotated[
        SecretStr | None,
        Field(
            max_length=TOKEN_LIMIT,
            description="What the FRP server wants to hear. Never shown again: left out, it stays; empty, it goes.",
            json_schema_extra={"writeOnly": True},
        ),
    ] = None


class SshStatus(Value):
    """How far SSH into the unit is."""

    phase: Annotated[SshPhase, Field(description="The condition SSHReady says why.")]
    username: Annotated[str, Field(description="Who logs in.")]
    target_host: Annotated[str, Field(description="The unit's domain on the FRP server.")]
    connect_host: Annotated[str, Field(description="Where users reach the FRP server.")]
    connect_port: Annotated[int, Field(description="And on which port.")]
    access_command: Annotated[str | None, Field(description="Ready to paste, once it is Ready.")] = None


def check_ssh(ssh: Ssh) -> Ssh:
    """The block in its one form, trimmed, in lower case, each key once; RequestError for what cannot be."""
    return ssh.model_copy(
        update={
            "username": _check_username(ssh.username),
            "authorized_keys": _check_keys(ssh.authorized_keys),
            "server_addr": (server := _check_host("ssh.serverAddr", ssh.server_addr)),
            "connect_host": _check_host("ssh.connectHost", ssh.connect_host or server),
            **_check_domain(ssh),
            "client_name": _check_name(ssh.client_name),
        }
    )


def accept_ssh(wish: SshWish | None, before: Ssh | None = None) -> Ssh | None:
    """What becomes of a wish about a unit that has this SSH. RequestError for a token that cannot be; the rest is for
    `check_ssh`.

    | wish                  | →                                       |
    | --------------------- | --------------------------------------- |
    | not said              | as it was                               |
    | disabled              | none                                    |
    | without a token       | replaced; the token stays, if there is one |
    | with an empty token   | replaced, without a token               |
    | with a token          | replaced; `with_token_hash` sets the digest once all else is checked |
    """
    if wish is None:
        return before
    if not wish.enabled:
        return None
    ssh = Ssh.model_validate(wish.model_dump(exclude={"token"}))
    if wish.token is None:
        kept = before.token_hash if before is not None else None
        return ssh.model_copy(update={"token_hash": kept})
    token = wish.token.get_secret_value()
    if not TOKEN.fullmatch(token):
        raise RequestError("ssh.token", "should be printable ASCII without spaces")
    return ssh


def token_of(wish: SshWish | None) -> str | None:
    """The token that a wish brings; None for one that brings none."""
    return (wish.token.get_secret_value() or None) if wish is not None and wish.enabled and wish.token else None


def find_token_hash(token: str, namespace: str, unit: str, known: str | None = None) -> str:
    """Returns the digest of a unit's token. The salt is derived from the unit, so that the same request always has the
    same digest, and a list of digests is of use against one unit only. Takes milliseconds.

    | known (what is recorded)          | →                                        |
    | --------------------------------- | ---------------------------------------- |
    | nothing                           | the digest with the unit's salt          |
    | this token's, with either salt    | known: an earlier digest keeps its Secret |
    | another token's                   | the digest with the unit's salt          |
    """
    own = hash_token(token, namespace, unit)
    if known is None or known == own:
        return own
    return known if known == hash_token_unsalted(token) else own


def hash_token(token: str, namespace: str, unit: str) -> str:
    return _derive(token, f"{TOKEN_SALT}\0{namespace}\0{unit}")


def hash_token_unsalted(token: str) -> str:
    """Returns the digest as earlier versions recorded it: with one salt for all units."""
    return _derive(token, TOKEN_SALT)


def _derive(token: str, salt: str) -> str:
    return hashlib.pbkdf2_hmac("sha256", token.encode(), salt.encode(), TOKEN_ROUNDS).hex()[:32]


def target_host(ssh: Ssh, namespace: str, unit: str) -> str:
    """The unit's domain on the FRP server, of a block that was checked."""
    return ssh.client_domain or f"{unit}.{namespace}.{ssh.domain_suffix}"


def access_command(ssh: Ssh, namespace: str, unit: str) -> str:
    """What a user pastes, of a block that was checked: nothing in it needs quoting."""
    host = ssh.connect_host or ""
    proxy = f"[{host}]:{ssh.connect_port}" if ":" in host else f"{host}:{ssh.connect_port}"
    return f"ssh -o ProxyCommand='nc -X connect -x {proxy} %h %p' {ssh.username}@{target_host(ssh, namespace, unit)}"


def _check_username(text: str) -> str:
    username = text.strip().lower()
    if not USERNAME.fullmatch(username) or username == "root":
        raise RequestError(
            "ssh.username", "should be 1 to 32 letters, digits and inner hyphens, begin with a letter, and not be root"
        )
    return username


def _check_keys(texts: tuple[str, ...]) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for index, text in enumerate(texts):
        try:
            key = parse_public_key(text)
        except PublicKeyError as error:
            raise RequestError(f"ssh.authorizedKeys[{index}]", str(error)) from None
        found.setdefault(key.encoded, key.line)
    if not found:
        raise RequestError("ssh.authorizedKeys", "should have at least one public key: nobody could log in")
    return tuple(found.values())


def _check_host(field: str, text: str | None) -> str:
    host = (text or "").strip().lower()
    if not host:
        raise RequestError(field, "is required: the name or address of the FRP server")
    try:
        # After a `%`, an address may name anything.
        if "%" not in host:
            return str(ip_address(host))
    except ValueError:
        if DOMAIN.fullmatch(host):
            return host
    raise RequestError(field, "should be a DNS name or an IP address")


def _check_domain(ssh: Ssh) -> dict[str, str | None]:
    suffix = (ssh.domain_suffix or "").strip().lower().lstrip(".") or None
    domain = (ssh.client_domain or "").strip().lower() or None
    if suffix is None and domain is None:
        raise RequestError("ssh.domainSuffix", "is required, unless clientDomain says the whole domain")
    for field, name in (("ssh.domainSuffix", suffix), ("ssh.clientDomain", domain)):
        if name is not None and not DOMAIN.fullmatch(name):
            raise RequestError(field, "should be a DNS name")
    return {"domain_suffix": suffix, "client_domain": domain}


def _check_name(text: str | None) -> str | None:
    name = (text or "").strip().lower() or None
    if name is not None and not DOMAIN.fullmatch(name):
        raise RequestError("ssh.clientName", "should be lower-case letters, digits and inner hyphens and dots")
    return name


@dataclass(frozen=True)
class SparePlan:
    deleted: tuple[str, ...]
    """Names of Secrets."""

    listed: SpareTokens
    wait: timedelta | None
    """Until the next digest can be marked."""


def read_spare_tokens(unit: Json, now: datetime) -> SpareTokens:
    """Returns what is listed. What cannot be read is no digest, and an instant that cannot be read was long ago."""
    found = read_json(unit, names.ANNOTATION_SPARE_TOKENS)
    if found is None or isinstance(found, BadMetadata):
        return {}
    return {digest: _read_since(since, now) for digest, since in found.items() if DIGEST.fullmatch(digest)}


def with_spare_tokens(unit: Json, tokens: SpareTokens) -> Json:
    others = {key: value for key, value in annotations_of(unit).items() if key != names.ANNOTATION_SPARE_TOKENS}
    listed = {digest: since and since.isoformat() for digest, since in tokens.items()}
    own = {names.ANNOTATION_SPARE_TOKENS: json.dumps(listed, sort_keys=True)} if listed else {}
    return {**unit, "metadata": {**unit["metadata"], "annotations": {**others, **own}}}


def exchange_token(unit: Json, before: str | None, after: str | None, now: datetime) -> Json:
    """Returns the unit for the write that replaces the digest in its spec: the earlier one is spare, the new one is
    not."""
    if before == after:
        return unit
    tokens = {digest: since for digest, since in read_spare_tokens(unit, now).items() if digest != after}
    return with_spare_tokens(unit, tokens | {before: now} if before else tokens)


def plan_spare_tokens(unit: Json, digest: str | None, used: str | None, now: datetime) -> SparePlan:
    """`digest` is the one in the spec, `used` the name of the Secret that the Deployment reads.

    | in the spec | marked | its Secret is used | listed        | →                          |
    | ----------- | ------ | ------------------ | ------------- | -------------------------- |
    | yes         | any    | any                | any           | listed no more             |
    | no          | yes    | any                | any           | deleted and listed no more |
    | no          | no     | yes                | any           | stays                      |
    | no          | no     | no                 | for less than 15 s | stays, look again     |
    | no          | no     | no                 | longer        | marked                     |
    """
    deleted, listed, waits = list[str](), dict[str, datetime | None](), list[timedelta]()
    for spare, since in read_spare_tokens(unit, now).items():
        secret = names.ssh_token_secret(unit["metadata"]["name"], spare)
        if spare == digest:
            continue
        if since is None:
            deleted.append(secret)
        elif secret == used:
            listed[spare] = since
        elif (left := since + SPARE_GRACE - now) > timedelta():
            listed[spare] = since
            waits.append(left)
        else:
            listed[spare] = None
    return SparePlan(tuple(deleted), listed, min(waits, default=None))


def _read_since(value: object, now: datetime) -> datetime | None:
    if value is None:
        return None
    try:
        since = parse_instant(str(value))
    except ValueError:
        return LONG_AGO
    return since if since - now <= CLOCK_SKEW else LONG_AGO
