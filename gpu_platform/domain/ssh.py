"""SSH into a unit: the block that asks for it, what is wrong with one, and the words that a user pastes.

```
 ssh (nc) ──► FRP server ◄── frpc ──► SSH server      the last two beside the unit's container
```

The FRP token is in none of the models that are written down: a spec holds its digest, by which the Secret is called.
"""

import hashlib
import re
from enum import StrEnum
from ipaddress import ip_address
from typing import Annotated

from pydantic import Field, SecretStr

from gpu_platform.domain.hosts import DOMAIN
from gpu_platform.domain.ssh_keys import PublicKeyError, parse_public_key
from gpu_platform.domain.value import Value

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


class SshBlockError(Exception):
    """What is wrong with a block, and with which of its fields."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


def check_ssh(ssh: Ssh) -> Ssh:
    """The block in its one form, trimmed, in lower case, each key once; SshBlockError for what cannot be."""
    return ssh.model_copy(
        update={
            "username": _check_username(ssh.username),
            "authorized_keys": _check_keys(ssh.authorized_keys),
            "server_addr": (server := _check_host("serverAddr", ssh.server_addr)),
            "connect_host": _check_host("connectHost", ssh.connect_host or server),
            **_check_domain(ssh),
            "client_name": _check_name(ssh.client_name),
        }
    )


def accept_ssh(wish: SshWish | None, before: Ssh | None = None) -> Ssh | None:
    """What becomes of a wish about a unit that has this SSH. SshBlockError for a token that cannot be; the rest is for
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
        raise SshBlockError("token", "should be printable ASCII without spaces")
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
        raise SshBlockError(
            "username", "should be 1 to 32 letters, digits and inner hyphens, begin with a letter, and not be root"
        )
    return username


def _check_keys(texts: tuple[str, ...]) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for index, text in enumerate(texts):
        try:
            key = parse_public_key(text)
        except PublicKeyError as error:
            raise SshBlockError(f"authorizedKeys[{index}]", str(error)) from None
        found.setdefault(key.encoded, key.line)
    if not found:
        raise SshBlockError("authorizedKeys", "should have at least one public key: nobody could log in")
    return tuple(found.values())


def _check_host(field: str, text: str | None) -> str:
    host = (text or "").strip().lower()
    if not host:
        raise SshBlockError(field, "is required: the name or address of the FRP server")
    try:
        # After a `%`, an address may name anything.
        if "%" not in host:
            return str(ip_address(host))
    except ValueError:
        if DOMAIN.fullmatch(host):
            return host
    raise SshBlockError(field, "should be a DNS name or an IP address")


def _check_domain(ssh: Ssh) -> dict[str, str | None]:
    suffix = (ssh.domain_suffix or "").strip().lower().lstrip(".") or None
    domain = (ssh.client_domain or "").strip().lower() or None
    if suffix is None and domain is None:
        raise SshBlockError("domainSuffix", "is required, unless clientDomain says the whole domain")
    for field, name in (("domainSuffix", suffix), ("clientDomain", domain)):
        if name is not None and not DOMAIN.fullmatch(name):
            raise SshBlockError(field, "should be a DNS name")
    return {"domain_suffix": suffix, "client_domain": domain}


def _check_name(text: str | None) -> str | None:
    name = (text or "").strip().lower() or None
    if name is not None and not DOMAIN.fullmatch(name):
        raise SshBlockError("clientName", "should be lower-case letters, digits and inner hyphens and dots")
    return name
