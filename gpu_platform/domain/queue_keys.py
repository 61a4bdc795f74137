"""The keys of NATS ("nkeys"): Ed25519, written so that one sees what each is for.

| role     | public key | seed (secret) | signs                                  |
| -------- | ---------- | ------------- | -------------------------------------- |
| operator | `O…`       | `SO…`         | what accounts there are                |
| account  | `A…`       | `SA…`         | users; a signing key is one of these   |
| user     | `U…`       | `SU…`         | the server's challenge at a connection |
"""

import base64
import binascii
from enum import IntEnum

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SEED = 18 << 3
RAW_BYTES = 32


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


def verify(public_key: str, signature: bytes, data: bytes) -> None:
    """cryptography.exceptions.InvalidSignature: somebody else has signed, or something else."""
    Ed25519PublicKey.from_public_bytes(read_public_key(public_key)[1]).verify(signature, data)


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
